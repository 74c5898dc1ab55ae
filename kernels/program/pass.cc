#include "kernels/program/pass.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/program/arena.h"
#include "kernels/program/transfers.h"
#include "policies/seam/hash.h"

namespace concert::kernels {
namespace {

// The slots of all members, each slot's one below the other.
class PassSlots {
 public:
  // `begins`: of each slot, where the first member's is.
  PassSlots(std::span<const concert_program_slot> slots, std::vector<Address> begins, int gpu,
            size_t members)
      : begins_(std::move(begins)) {
    for (size_t i = 0; i < slots.size(); ++i) {
      all_.push_back({.address = begins_[i], .bytes = slots[i].bytes * members, .gpu = gpu});
      one_.push_back({.address = begins_[i], .bytes = slots[i].bytes, .gpu = gpu});
    }
  }
  std::span<const BufferRange> all() const { return all_; }
  // Valid until the next call.
  std::span<const BufferRange> Of(size_t member) {
    for (size_t i = 0; i < one_.size(); ++i) one_[i].address = begins_[i] + member * one_[i].bytes;
    return one_;
  }
  uint64_t bytes(const Access& access) const { return one_[SlotOf(access)].bytes; }
  // How far into the slot, of the member's, the access begins.
  uint64_t Offset(const Access& access, size_t member) const {
    const size_t slot = SlotOf(access);
    return access.memory.Bounds().begin - begins_[slot] - member * one_[slot].bytes;
  }

 private:
  std::vector<Address> begins_;
  std::vector<BufferRange> all_, one_;
};

AdmitContext ContextOf(const PassMember& member, std::span<const BufferRange> slots) {
  return {.gpu = member.source.gpu, .buffers = member.source.buffers, .slots = slots};
}

absl::Status Differs(size_t op, absl::string_view how) {
  return absl::FailedPreconditionError(absl::StrCat("op ", op, " ", how));
}

absl::Status CheckAlike(std::span<const PassMember> members) {
  const ProgramSource& first = members[0].source;
  for (const PassMember& member : members) {
    const ProgramSource& source = member.source;
    const bool same_slots =
        source.slots.size() == first.slots.size() &&
        std::equal(source.slots.begin(), source.slots.end(), first.slots.begin(),
                   [](const concert_program_slot& a, const concert_program_slot& b) {
                     return a.role == b.role && a.bytes == b.bytes;
                   });
    if (source.gpu != first.gpu || source.ops.size() != first.ops.size() || !same_slots)
      return absl::FailedPreconditionError("the programs differ in GPU, slots or number of ops");
  }
  return absl::OkStatus();
}

// One op of all members.
class OpOfAll {
 public:
  // An error if it is not admitted below the same of other members, or they do not do the same with
  // their slots.
  static absl::StatusOr<OpOfAll> Admit(std::span<const PassMember> members, size_t index,
                                       PassSlots& slots) {
    OpOfAll op(members, index);
    for (size_t m = 0; m < members.size(); ++m) {
      const Failure failure =
          AdmitStep(op.DescriptorOf(m), ContextOf(members[m], slots.Of(m)), op.ops_[m]);
      if (!failure.ok()) return Differs(index, failure.ToString());
      op.accesses_[m] = AccessesOf(op.ops_[m]);
      if (!op.UsesSameSlots(m, slots))
        return Differs(index, "does not use the same slots in all programs");
    }
    return op;
  }

  const Op& of(size_t member) const { return ops_[member]; }
  const concert_descriptor& DescriptorOf(size_t member) const {
    return members_[member].source.ops[index_];
  }

  // As one op over the rows of all. False if it cannot be one.
  bool Widen(const PassSlots& slots, Op& wide) const {
    const std::span<const uint8_t> operands = FindOpKind(ops_[0].kind)->row_operands;
    if (operands.empty()) return false;
    for (size_t m = 1; m < members_.size(); ++m) {
      if (!SameBut(operands, DescriptorOf(m), DescriptorOf(0))) return false;
    }
    concert_descriptor descriptor = DescriptorOf(0);
    uint32_t rows;
    std::memcpy(&rows, descriptor.body.raw, sizeof(rows));
    if (rows > UINT32_MAX / members_.size()) return false;
    rows *= static_cast<uint32_t>(members_.size());
    std::memcpy(descriptor.body.raw, &rows, sizeof(rows));
    if (!AdmitStep(descriptor, ContextOf(members_[0], slots.all()), wide).ok()) return false;
    const Accesses accesses = AccessesOf(wide);
    for (size_t i = 0; i < accesses.list().size(); ++i) {
      if (!RowsFollowOrAreShared(i, accesses.list()[i], slots)) return false;
    }
    return true;
  }

 private:
  OpOfAll(std::span<const PassMember> members, size_t index) : members_(members), index_(index) {}

  const Access& AccessOf(size_t member, size_t i) const { return accesses_[member].list()[i]; }

  bool UsesSameSlots(size_t m, const PassSlots& slots) const {
    if (ops_[m].kind != ops_[0].kind || accesses_[m].list().size() != accesses_[0].list().size())
      return false;
    for (size_t i = 0; i < accesses_[m].list().size(); ++i) {
      const Access &its = AccessOf(m, i), &first = AccessOf(0, i);
      if (its.field != first.field || its.mode != first.mode || InSlot(its) != InSlot(first))
        return false;
      if (!InSlot(its)) continue;
      if (its.buffer != first.buffer || slots.Offset(its, m) != slots.Offset(first, 0))
        return false;
    }
    return true;
  }

  static bool SameBut(std::span<const uint8_t> operands, concert_descriptor a,
                      concert_descriptor b) {
    for (const uint8_t at : operands) {
      std::memset(a.body.raw + at, 0, sizeof(concert_operand));
      std::memset(b.body.raw + at, 0, sizeof(concert_operand));
    }
    return std::memcmp(a.body.raw, b.body.raw, sizeof(a.body.raw)) == 0;
  }

  // Of operand i, which the op over all rows has as `wide`: either it reaches as much further as
  // the slots of the other members do, so that each of these has its member's rows; or more rows
  // make no difference to it, and all members read the same.
  bool RowsFollowOrAreShared(size_t i, const Access& wide, const PassSlots& slots) const {
    const Access& one = AccessOf(0, i);
    const ByteRange bounds = one.memory.Bounds();
    const uint64_t further = wide.memory.Bounds().end - bounds.end;
    if (InSlot(one)) return further == (members_.size() - 1) * slots.bytes(one);
    if (further != 0 || one.writes()) return false;
    for (size_t m = 1; m < members_.size(); ++m) {
      if (AccessOf(m, i).memory.Bounds() != bounds) return false;
    }
    return true;
  }

  std::span<const PassMember> members_;
  size_t index_;
  std::array<Op, kMaxPassMembers> ops_;
  std::array<Accesses, kMaxPassMembers> accesses_;
};

// Slots for all members. What is between two ops for all is done by members each at its own pace:
// to slots it is one op.
ArenaPlan PlacePassSlots(const ArenaPlan& one, const std::vector<bool>& wide, size_t members) {
  std::vector<uint32_t> times;
  for (size_t i = 0; i < wide.size(); ++i) {
    const bool next = i > 0 && (wide[i] || wide[i - 1]);
    times.push_back(i == 0 ? 0 : times.back() + (next ? 1 : 0));
  }
  const auto time_of = [&](uint32_t op) { return op < times.size() ? times[op] : op; };
  ArenaPlan plan;
  for (const ArenaSlot& slot : one.slots) {
    ArenaSlot all = {.bytes = slot.bytes * members, .first = slot.first, .last = slot.last};
    if (slot.first <= slot.last) all.first = time_of(slot.first), all.last = time_of(slot.last);
    plan.slots.push_back(all);
  }
  plan.bytes = PlaceSlots(plan.slots, kArenaAlignment);
  return plan;
}

}  // namespace

absl::StatusOr<PassPlan> PlanPass(std::span<const PassMember> members) {
  if (absl::Status status = CheckAlike(members); !status.ok()) return status;
  const ProgramSource& first = members[0].source;
  PassSlots slots(first.slots, UnplacedAddresses(first.slots, members.size()), first.gpu,
                  members.size());
  PassPlan plan;
  for (size_t i = 0; i < first.ops.size(); ++i) {
    const absl::StatusOr<OpOfAll> op = OpOfAll::Admit(members, i, slots);
    if (!op.ok()) return op.status();
    Op wide;
    plan.wide.push_back(op->Widen(slots, wide));
    if (!plan.wide.back()) continue;
    const uint64_t bytes = op->of(0).work.hbm_bytes * members.size();
    if (bytes > wide.work.hbm_bytes)
      plan.shared_bytes += (bytes - wide.work.hbm_bytes) / (members.size() - 1);
  }
  const absl::StatusOr<ArenaPlan> one = PlanArena(first);
  if (!one.ok()) return one.status();
  plan.arena = PlacePassSlots(*one, plan.wide, members.size());
  return plan;
}

absl::StatusOr<std::unique_ptr<Pass>> BindPass(std::span<const PassMember> members,
                                               const PassPlan& plan, Address arena) {
  const ProgramSource& first = members[0].source;
  std::vector<Address> begins;
  for (const ArenaSlot& slot : plan.arena.slots) begins.push_back(arena + slot.offset);
  auto pass = std::make_unique<Pass>();
  pass->member_count = static_cast<uint32_t>(members.size());
  pass->shared_bytes = plan.shared_bytes;
  for (size_t m = 0; m < members.size(); ++m) pass->members[m] = members[m].program;
  Program& program = pass->program;
  program.gpu = first.gpu;
  program.arena = {arena, arena + plan.arena.bytes};
  for (size_t i = 0, binding = 0; i < first.slots.size(); ++i) {
    if (first.slots[i].role != CONCERT_SLOT_BINDING) continue;
    program.bindings.push_back({begins[i], first.slots[i].bytes * members.size(),
                                members[0].program->bindings[binding++].written});
  }
  PassSlots slots(first.slots, std::move(begins), first.gpu, members.size());
  std::vector<std::vector<Op>> waiting;  // since the last for all, by op and member
  const auto add_waiting = [&] {
    for (const std::vector<Op>& one : waiting) {
      for (size_t m = 0; m < members.size(); ++m) {
        program.ops.push_back(one[m]);
        pass->owners.push_back(static_cast<int8_t>(m));
      }
    }
    waiting.clear();
  };
  for (size_t i = 0; i < first.ops.size(); ++i) {
    const absl::StatusOr<OpOfAll> op = OpOfAll::Admit(members, i, slots);
    if (!op.ok()) return op.status();
    if (!plan.wide[i]) {
      std::vector<Op>& one = waiting.emplace_back();
      for (size_t m = 0; m < members.size(); ++m) one.push_back(op->of(m));
      continue;
    }
    add_waiting();
    if (!op->Widen(slots, program.ops.emplace_back()))
      return Differs(i, "cannot be one for all where the arena lies");
    pass->owners.push_back(Pass::kAll);
  }
  add_waiting();
  return pass;
}

uint64_t HashForPass(const Program& program) {
  using policies::Chain;
  uint64_t hash = Chain(static_cast<uint64_t>(program.gpu), program.slot_bytes);
  for (const Op& op : program.ops) {
    hash = Chain(hash, op.kind);
    hash = Chain(hash, uint64_t{op.work.m} << 32 | op.work.n);
    hash = Chain(hash, op.work.hbm_bytes);
    if (FindOpKind(op.kind)->row_operands.empty()) continue;
    const Accesses accesses = AccessesOf(op);
    for (const Access& access : accesses.list()) {
      const bool weights = access.field == CONCERT_FIELD_W || access.field == CONCERT_FIELD_TABLE;
      if (weights && !InSlot(access)) hash = Chain(hash, access.memory.Bounds().begin);
    }
  }
  return hash;
}

uint64_t MostShared(const Program& program) {
  uint64_t bytes = 0;
  for (const Op& op : program.ops) {
    if (FindOpKind(op.kind)->row_operands.empty()) continue;
    const Accesses accesses = AccessesOf(op);
    for (const Access& access : accesses.list()) {
      const ByteRange bounds = access.memory.Bounds();
      if (!InSlot(access) && !access.writes()) bytes += bounds.end - bounds.begin;
    }
  }
  return bytes;
}

policies::Work WorkOfPass(const Pass& pass, std::span<const Op* const> runs) {
  policies::Work work = runs[0]->work;
  for (const Op* run : runs.subspan(1)) {
    work.m = std::min(work.m + run->work.m, uint32_t{1} << 16);
    work.flops += run->work.flops;
    work.hbm_bytes += run->work.hbm_bytes - std::min(pass.shared_bytes, run->work.hbm_bytes);
  }
  const policies::RunCost& cost = pass.run_costs[runs.size() - 1];
  if (runs.size() > 1 && cost.us > 0) policies::SetRunCost(cost, work);
  return work;
}

void ComputePass(const Pass& pass, std::span<const Op* const> runs) {
  std::array<bool, kMaxPassMembers> there{};
  for (const Op* run : runs) {
    there[run->program.member] = true;
    ComputeTransfers(run->program, Way::kIn);
  }
  for (size_t i = 0; i < pass.program.ops.size(); ++i) {
    const int8_t owner = pass.owners[i];
    if (owner != Pass::kAll && !there[static_cast<size_t>(owner)]) continue;
    const Op* const part = &pass.program.ops[i];
    FindOpKind(part->kind)->compute({&part, 1});
  }
  for (const Op* run : runs) ComputeTransfers(run->program, Way::kOut);
}

}  // namespace concert::kernels
