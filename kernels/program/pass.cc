#include "kernels/program/pass.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/program/arena.h"
#include "kernels/program/pass_op.h"
#include "kernels/program/transfers.h"
#include "policies/seam/hash.h"

namespace concert::kernels {
namespace {

// What an op for all whose operands are staged must save for each further member: 8 us of memory's
// pace, about what the copies' launches take, and twice their bytes.
constexpr uint64_t kMinSharedOfStaged = 32 << 20, kSharedPerStaged = 4;

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

// What a run reads and one more in the pass does not read again.
uint64_t SharedBytes(const PassOp& op, const Op& wide, size_t members) {
  const uint64_t bytes = op.of(0).work.hbm_bytes * members;
  return bytes > wide.work.hbm_bytes ? (bytes - wide.work.hbm_bytes) / (members - 1) : 0;
}

std::span<const StagedOperand> StagedOf(const PassPlan& plan, size_t op) {
  const auto [begin, end] = std::equal_range(
      plan.staged.begin(), plan.staged.end(), StagedOperand{.op = static_cast<uint32_t>(op)},
      [](const StagedOperand& a, const StagedOperand& b) { return a.op < b.op; });
  return {begin, end};
}

// Whether the op can be one for all and is worth it with operands that are staged: then they and
// what is shared are noted.
bool WidenStaged(std::span<const PassMember> members, size_t index, const PassOp& plain,
                 PassSlots& slots, PassPlan& plan) {
  const size_t slots_before = slots.size();
  const std::vector<StagedOperand> staged = plain.Stage(slots);
  if (staged.empty()) return false;
  uint64_t copied_bytes = 0;
  for (const StagedOperand& one : staged) copied_bytes += one.bytes * (one.in + one.out);
  const absl::StatusOr<PassOp> op = PassOp::Admit(members, index, staged, slots);
  Op wide;
  const uint64_t shared_bytes =
      op.ok() && op->Widen(slots, wide) ? SharedBytes(*op, wide, members.size()) : 0;
  if (shared_bytes < kMinSharedOfStaged + kSharedPerStaged * copied_bytes) {
    slots.KeepFirst(slots_before);
    return false;
  }
  plan.staged.insert(plan.staged.end(), staged.begin(), staged.end());
  plan.shared_bytes += shared_bytes - 2 * copied_bytes;
  return true;
}

// When a member's ops come, and what is copied for them. What is between two ops for all is done by
// members each at its own pace: to slots it is one moment.
class Moments {
 public:
  struct OfOp {
    uint32_t in, op, out;
  };
  explicit Moments(const PassPlan& plan) {
    for (size_t i = 0; i < plan.wide.size(); ++i) {
      bool in = false, out = false;
      for (const StagedOperand& staged : StagedOf(plan, i)) in |= staged.in, out |= staged.out;
      OfOp moments;
      if (in) moments.in = Next(/*wide=*/false);
      moments.op = Next(plan.wide[i]);
      if (!in) moments.in = moments.op;
      moments.out = out ? Next(/*wide=*/false) : moments.op;
      of_.push_back(moments);
    }
  }
  // Behind the last op: the run's end.
  OfOp of(uint32_t op) const {
    const uint32_t end = std::max(op, now_ + 1);
    return op < of_.size() ? of_[op] : OfOp{end, end, end};
  }

 private:
  uint32_t Next(bool wide) {
    now_ += wide || was_wide_ ? 1 : 0;
    was_wide_ = wide;
    return now_;
  }

  std::vector<OfOp> of_;
  uint32_t now_ = 0;
  bool was_wide_ = false;
};

// Slots for all members.
void PlacePassSlots(const ArenaPlan& one, const PassSlots& slots, size_t members, PassPlan& plan) {
  const Moments moments(plan);
  for (const ArenaSlot& slot : one.slots) {
    ArenaSlot all = {.bytes = slot.bytes * members, .first = slot.first, .last = slot.last};
    if (slot.first <= slot.last)
      all.first = moments.of(slot.first).op, all.last = moments.of(slot.last).op;
    plan.arena.slots.push_back(all);
  }
  for (const StagedOperand& staged : plan.staged) {
    const Moments::OfOp its = moments.of(staged.op);
    plan.arena.slots.push_back({.bytes = slots.bytes(staged.slot) * members,
                                .first = staged.in ? its.in : its.op,
                                .last = staged.out ? its.out : its.op});
  }
  plan.arena.bytes = PlaceSlots(plan.arena.slots, kArenaAlignment);
}

// The ops of a pass, in their order.
class PassOps {
 public:
  PassOps(std::span<const PassMember> members, const PassPlan& plan, PassSlots& slots, Pass& pass)
      : members_(members), plan_(plan), slots_(slots), pass_(pass) {}

  absl::Status Add(size_t index) {
    const absl::StatusOr<PassOp> op = PassOp::Admit(members_, index, {}, slots_);
    if (!op.ok()) return op.status();
    if (plan_.wide[index]) return AddForAll(index, *op);
    std::vector<Op>& each = waiting_.emplace_back();
    for (size_t m = 0; m < members_.size(); ++m) each.push_back(op->of(m));
    return absl::OkStatus();
  }
  void AddWaiting() {
    for (const std::vector<Op>& each : waiting_) {
      for (size_t m = 0; m < members_.size(); ++m) {
        pass_.program.ops.push_back(each[m]);
        pass_.owners.push_back(static_cast<int8_t>(m));
      }
    }
    waiting_.clear();
  }

 private:
  absl::Status AddForAll(size_t index, const PassOp& plain) {
    const std::span<const StagedOperand> staged = StagedOf(plan_, index);
    if (absl::Status status = AddCopies(plain, staged, /*out=*/false); !status.ok()) return status;
    AddWaiting();
    if (staged.empty()) return AddWide(index, plain);
    const absl::StatusOr<PassOp> op = PassOp::Admit(members_, index, staged, slots_);
    if (!op.ok()) return op.status();
    if (absl::Status status = AddWide(index, *op); !status.ok()) return status;
    return AddCopies(plain, staged, /*out=*/true);
  }
  absl::Status AddWide(size_t index, const PassOp& op) {
    if (!op.Widen(slots_, pass_.program.ops.emplace_back())) {
      return absl::FailedPreconditionError(
          absl::StrCat("op ", index, " cannot be one for all where the arena lies"));
    }
    pass_.owners.push_back(Pass::kAll);
    return absl::OkStatus();
  }
  absl::Status AddCopies(const PassOp& plain, std::span<const StagedOperand> staged, bool out) {
    for (const StagedOperand& one : staged) {
      if (!(out ? one.out : one.in)) continue;
      std::vector<Op>& each = waiting_.emplace_back();
      for (size_t m = 0; m < members_.size(); ++m) {
        const absl::StatusOr<Op> copy = plain.CopyOf(one, out, m, slots_);
        if (!copy.ok()) return copy.status();
        each.push_back(*copy);
      }
    }
    return absl::OkStatus();
  }

  const std::span<const PassMember> members_;
  const PassPlan& plan_;
  PassSlots& slots_;
  Pass& pass_;
  std::vector<std::vector<Op>> waiting_;  // since the last for all, by op and member
};

}  // namespace

absl::StatusOr<PassPlan> PlanPass(std::span<const PassMember> members) {
  if (absl::Status status = CheckAlike(members); !status.ok()) return status;
  const ProgramSource& first = members[0].source;
  PassSlots slots(first.gpu, members.size());
  for (const concert_program_slot& slot : first.slots) slots.AddUnplaced(slot.bytes);
  PassPlan plan;
  for (size_t i = 0; i < first.ops.size(); ++i) {
    const absl::StatusOr<PassOp> op = PassOp::Admit(members, i, {}, slots);
    if (!op.ok()) return op.status();
    Op wide;
    const bool is_wide = op->Widen(slots, wide);
    if (is_wide) plan.shared_bytes += SharedBytes(*op, wide, members.size());
    plan.wide.push_back(is_wide || WidenStaged(members, i, *op, slots, plan));
  }
  const absl::StatusOr<ArenaPlan> one = PlanArena(first);
  if (!one.ok()) return one.status();
  PlacePassSlots(*one, slots, members.size(), plan);
  return plan;
}

absl::StatusOr<std::unique_ptr<Pass>> BindPass(std::span<const PassMember> members,
                                               const PassPlan& plan, Address arena) {
  const ProgramSource& first = members[0].source;
  auto pass = std::make_unique<Pass>();
  pass->member_count = static_cast<uint32_t>(members.size());
  pass->shared_bytes = plan.shared_bytes;
  for (size_t m = 0; m < members.size(); ++m) pass->members[m] = members[m].program;
  Program& program = pass->program;
  program.gpu = first.gpu;
  program.arena = {arena, arena + plan.arena.bytes};
  PassSlots slots(first.gpu, members.size());
  for (const ArenaSlot& slot : plan.arena.slots)
    slots.Add(slot.bytes / members.size(), arena + slot.offset);
  for (size_t i = 0, binding = 0; i < first.slots.size(); ++i) {
    if (first.slots[i].role != CONCERT_SLOT_BINDING) continue;
    program.bindings.push_back({arena + plan.arena.slots[i].offset, plan.arena.slots[i].bytes,
                                members[0].program->bindings[binding++].written});
  }
  PassOps ops(members, plan, slots, *pass);
  for (size_t i = 0; i < first.ops.size(); ++i) {
    if (absl::Status status = ops.Add(i); !status.ok()) return status;
  }
  ops.AddWaiting();
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
