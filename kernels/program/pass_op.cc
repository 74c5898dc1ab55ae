#include "kernels/program/pass_op.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace concert::kernels {
namespace {

// Of a slot whose size is not known yet: more than any operand has.
constexpr uint64_t kTrialBytes = uint64_t{1} << 46;

AdmitContext ContextOf(const PassMember& member, std::span<const BufferRange> slots) {
  return {.gpu = member.source.gpu, .buffers = member.source.buffers, .slots = slots};
}

absl::Status Differs(size_t op, absl::string_view how) {
  return absl::FailedPreconditionError(absl::StrCat("op ", op, " ", how));
}

concert_operand OperandAt(const concert_descriptor& descriptor, uint16_t at) {
  concert_operand operand;
  std::memcpy(&operand, descriptor.body.raw + at, sizeof(operand));
  return operand;
}

bool IsSlot(uint32_t handle) { return handle >> kBufferIndexBits == kSlotGeneration; }

concert_descriptor WithStaged(concert_descriptor descriptor,
                              std::span<const StagedOperand> staged) {
  for (const StagedOperand& one : staged) {
    concert_operand operand = OperandAt(descriptor, one.at);
    operand.buffer = CONCERT_SLOT_HANDLE(one.slot), operand.offset = 0;
    std::memcpy(descriptor.body.raw + one.at, &operand, sizeof(operand));
  }
  return descriptor;
}

// False: they are too many.
bool MultiplyRows(const RowCount& count, size_t by, concert_descriptor& descriptor) {
  uint8_t* const at = descriptor.body.raw + count.at;
  uint64_t rows = 0;
  std::memcpy(&rows, at, count.bytes);
  const uint64_t most = count.bytes == 4 ? UINT32_MAX : UINT64_MAX;
  if (rows > most / by) return false;
  rows *= by;
  std::memcpy(at, &rows, count.bytes);
  return true;
}

bool SameBut(std::span<const uint8_t> operands, concert_descriptor a, concert_descriptor b) {
  for (const uint8_t at : operands) {
    std::memset(a.body.raw + at, 0, sizeof(concert_operand));
    std::memset(b.body.raw + at, 0, sizeof(concert_operand));
  }
  return std::memcmp(a.body.raw, b.body.raw, sizeof(a.body.raw)) == 0;
}

// Which of them is in the slot; as many as there are: none.
size_t IndexOf(uint32_t slot, std::span<const Access> accesses) {
  const auto is_it = [slot](const Access& one) { return InSlot(one) && SlotOf(one) == slot; };
  return static_cast<size_t>(std::find_if(accesses.begin(), accesses.end(), is_it) -
                             accesses.begin());
}

}  // namespace

uint32_t PassSlots::Add(uint64_t bytes, Address begin) {
  begins_.push_back(begin);
  one_.push_back({.address = begin, .bytes = bytes, .gpu = gpu_});
  all_.push_back({.address = begin, .bytes = bytes * members_, .gpu = gpu_});
  return static_cast<uint32_t>(one_.size() - 1);
}

uint32_t PassSlots::AddUnplaced(uint64_t bytes) {
  const Address end = one_.empty() ? kUnplacedArena : begins_.back() + one_.back().bytes * members_;
  return Add(bytes, AlignedInArena(end));
}

std::span<const BufferRange> PassSlots::Of(size_t member) {
  for (size_t i = 0; i < one_.size(); ++i) one_[i].address = begins_[i] + member * one_[i].bytes;
  return one_;
}

absl::StatusOr<PassOp> PassOp::Admit(std::span<const PassMember> members, size_t index,
                                     std::span<const StagedOperand> staged, PassSlots& slots) {
  PassOp op(members, index);
  for (size_t m = 0; m < members.size(); ++m) {
    op.descriptors_[m] = WithStaged(members[m].source.ops[index], staged);
    const Failure failure =
        AdmitStep(op.descriptors_[m], ContextOf(members[m], slots.Of(m)), op.ops_[m]);
    if (!failure.ok()) return Differs(index, failure.ToString());
    op.accesses_[m] = AccessesOf(op.ops_[m]);
    if (!op.UsesSameSlots(m, slots))
      return Differs(index, "does not use the same slots in all programs");
  }
  return op;
}

bool PassOp::UsesSameSlots(size_t member, const PassSlots& slots) const {
  if (ops_[member].kind != ops_[0].kind ||
      accesses_[member].list().size() != accesses_[0].list().size()) {
    return false;
  }
  for (size_t i = 0; i < accesses_[member].list().size(); ++i) {
    const Access &its = AccessOf(member, i), &first = AccessOf(0, i);
    if (its.field != first.field || its.mode != first.mode || InSlot(its) != InSlot(first))
      return false;
    if (!InSlot(its)) continue;
    if (its.buffer != first.buffer || slots.Offset(its, member) != slots.Offset(first, 0))
      return false;
  }
  return true;
}

bool PassOp::Widen(PassSlots& slots, Op& wide) const {
  const OpKind& kind = *FindOpKind(ops_[0].kind);
  const std::span<const uint8_t> operands = kind.row_operands;
  if (operands.empty()) return false;
  for (size_t m = 1; m < members_.size(); ++m) {
    if (!SameBut(operands, descriptors_[m], descriptors_[0])) return false;
  }
  concert_descriptor descriptor = descriptors_[0];
  if (!MultiplyRows(kind.row_count, members_.size(), descriptor)) return false;
  if (!AdmitStep(descriptor, ContextOf(members_[0], slots.all()), wide).ok()) return false;
  const Accesses accesses = AccessesOf(wide);
  for (size_t i = 0; i < accesses.list().size(); ++i) {
    if (!RowsFollowOrAreShared(i, accesses.list()[i], slots)) return false;
  }
  return true;
}

// Of operand i, which the op over all rows has as `wide`: either it reaches as much further as the
// slots of the other members do, so that each of these has its member's rows; or more rows make no
// difference to it, and all members read the same.
bool PassOp::RowsFollowOrAreShared(size_t i, const Access& wide, const PassSlots& slots) const {
  const Access& one = AccessOf(0, i);
  const uint64_t further = wide.memory.Bounds().end - one.memory.Bounds().end;
  if (InSlot(one)) return further == (members_.size() - 1) * slots.bytes(SlotOf(one));
  return further == 0 && !IsOwn(i);
}

bool PassOp::IsOwn(size_t i) const {
  const Access& one = AccessOf(0, i);
  bool is_own = one.writes();
  for (size_t m = 1; m < members_.size(); ++m)
    is_own |= AccessOf(m, i).memory.Bounds() != one.memory.Bounds();
  return is_own && !InSlot(one);
}

std::vector<StagedOperand> PassOp::Stage(PassSlots& slots) const {
  const size_t slots_before = slots.size();
  std::vector<StagedOperand> staged = OwnOperands(slots);
  if (Size(staged, slots)) return staged;
  slots.KeepFirst(slots_before);
  return {};
}

// Which of the op's accesses an operand of its body is, is seen by what becomes of it in a slot.
std::vector<StagedOperand> PassOp::OwnOperands(PassSlots& slots) const {
  std::vector<StagedOperand> staged;
  for (const uint8_t at : FindOpKind(ops_[0].kind)->row_operands) {
    const uint32_t handle = OperandAt(descriptors_[0], at).buffer;
    if (handle == 0 || IsSlot(handle)) continue;
    StagedOperand one = {
        .op = static_cast<uint32_t>(index_), .slot = slots.AddUnplaced(kTrialBytes), .at = at};
    Op op;
    const Failure failure =
        AdmitStep(WithStaged(descriptors_[0], {&one, 1}), ContextOf(members_[0], slots.Of(0)), op);
    const Accesses accesses = failure.ok() ? AccessesOf(op) : Accesses();
    const size_t i = IndexOf(one.slot, accesses.list());
    if (i == accesses.list().size() || !IsOwn(i) || AccessOf(0, i).memory.level_count != 0) {
      slots.KeepFirst(one.slot);
      continue;
    }
    one.bytes = AccessOf(0, i).memory.run_bytes;
    one.out = AccessOf(0, i).writes();
    one.in = AccessOf(0, i).mode != AccessMode::kWrite;
    staged.push_back(one);
  }
  return staged;
}

bool PassOp::Size(std::span<const StagedOperand> staged, PassSlots& slots) const {
  concert_descriptor descriptor = WithStaged(descriptors_[0], staged);
  Op one, wide;
  if (staged.empty() || !AdmitStep(descriptor, ContextOf(members_[0], slots.Of(0)), one).ok() ||
      !MultiplyRows(FindOpKind(one.kind)->row_count, members_.size(), descriptor) ||
      !AdmitStep(descriptor, ContextOf(members_[0], slots.all()), wide).ok()) {
    return false;
  }
  const Accesses accesses = AccessesOf(one), of_all = AccessesOf(wide);
  for (const StagedOperand& operand : staged) {
    const size_t i = IndexOf(operand.slot, accesses.list());
    const uint64_t further =
        of_all.list()[i].memory.Bounds().end - accesses.list()[i].memory.Bounds().end;
    slots.Resize(operand.slot, further / (members_.size() - 1));
    if (further == 0) return false;
  }
  return true;
}

absl::StatusOr<Op> PassOp::CopyOf(const StagedOperand& staged, bool out, size_t member,
                                  PassSlots& slots) const {
  const concert_operand own = OperandAt(descriptors_[member], staged.at);
  const concert_operand from = {own.buffer, 0, own.offset};
  const concert_operand to = {CONCERT_SLOT_HANDLE(staged.slot), 0, 0};
  concert_descriptor descriptor = {};
  descriptor.kind = CONCERT_OP_COPY;
  descriptor.body.copy.src = out ? to : from;
  descriptor.body.copy.dst = out ? from : to;
  descriptor.body.copy.bytes = staged.bytes;
  Op op;
  const Failure failure = AdmitStep(descriptor, ContextOf(members_[member], slots.Of(member)), op);
  if (!failure.ok()) return Differs(index_, failure.ToString());
  return op;
}

}  // namespace concert::kernels
