// One op of all members of a pass: what each does by itself, and what one op over the rows of all
// does instead. Pure.
#ifndef CONCERT_KERNELS_PROGRAM_PASS_OP_H_
#define CONCERT_KERNELS_PROGRAM_PASS_OP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/access.h"
#include "kernels/op_table.h"
#include "kernels/program/pass.h"

namespace concert::kernels {

// The slots of all members, each slot's one below the other.
class PassSlots {
 public:
  PassSlots(int gpu, size_t members) : gpu_(gpu), members_(members) {}

  // One more, of so many bytes a member. Its number.
  uint32_t Add(uint64_t bytes, Address begin);
  // The same while there is no memory: behind the last one.
  uint32_t AddUnplaced(uint64_t bytes);
  // REQUIRES: it becomes no larger.
  void Resize(uint32_t slot, uint64_t bytes) {
    one_[slot].bytes = bytes, all_[slot].bytes = bytes * members_;
  }
  void KeepFirst(size_t count) { one_.resize(count), all_.resize(count), begins_.resize(count); }

  size_t size() const { return one_.size(); }
  uint64_t bytes(uint32_t slot) const { return one_[slot].bytes; }
  // Valid until slots are added, resized or given up, and what Of says until the next call of it.
  std::span<const BufferRange> all() const { return all_; }
  std::span<const BufferRange> Of(size_t member);
  // How far into the slot, of the member's, the access begins.
  uint64_t Offset(const Access& access, size_t member) const {
    const uint32_t slot = SlotOf(access);
    return access.memory.Bounds().begin - begins_[slot] - member * bytes(slot);
  }

 private:
  const int gpu_;
  const size_t members_;
  std::vector<Address> begins_;
  std::vector<BufferRange> one_, all_;
};

class PassOp {
 public:
  // `staged`: of this op. An error if it is not admitted below the same of other members, or they
  // do not do the same with their slots.
  static absl::StatusOr<PassOp> Admit(std::span<const PassMember> members, size_t index,
                                      std::span<const StagedOperand> staged, PassSlots& slots);

  const Op& of(size_t member) const { return ops_[member]; }
  // As one op over the rows of all. False if it cannot be one.
  bool Widen(PassSlots& slots, Op& wide) const;

  // Operands that members have each in memory of its own, with slots for them, so that nothing else
  // keeps it from being one op over the rows of all. Empty, and no slots: something does, or
  // nothing is such an operand. REQUIRES: none is staged, and the slots have no memory.
  std::vector<StagedOperand> Stage(PassSlots& slots) const;
  // What moves a member's operand to its place in the slot, or back. REQUIRES: none is staged.
  absl::StatusOr<Op> CopyOf(const StagedOperand& staged, bool out, size_t member,
                            PassSlots& slots) const;

 private:
  PassOp(std::span<const PassMember> members, size_t index) : members_(members), index_(index) {}

  const Access& AccessOf(size_t member, size_t i) const { return accesses_[member].list()[i]; }
  bool UsesSameSlots(size_t member, const PassSlots& slots) const;
  bool RowsFollowOrAreShared(size_t i, const Access& wide, const PassSlots& slots) const;
  // Whether no other member may have operand i where this one has it.
  bool IsOwn(size_t i) const;
  std::vector<StagedOperand> OwnOperands(PassSlots& slots) const;
  // Gives each slot as many bytes as a member's rows take in the op over those of all.
  bool Size(std::span<const StagedOperand> staged, PassSlots& slots) const;

  std::span<const PassMember> members_;
  size_t index_;
  std::array<concert_descriptor, kMaxPassMembers> descriptors_;
  std::array<Op, kMaxPassMembers> ops_;
  std::array<Accesses, kMaxPassMembers> accesses_;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_PASS_OP_H_
