// Passes: runs of several programs that read the same weights as one, which reads them once.
#ifndef CONCERT_KERNELS_PROGRAM_PASS_H_
#define CONCERT_KERNELS_PROGRAM_PASS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/program/compile.h"
#include "kernels/program/program.h"

namespace concert::kernels {

// Programs of one pass: more would make its GEMMs bound by arithmetic.
inline constexpr size_t kMaxPassMembers = 8;
static_assert(kMaxPassMembers <= kMaxTogether);

// What of a pass's programs is in flight, in it or alone: the scheduler's.
struct PassUse {
  struct OfClass {
    uint32_t runs = 0;                                // launched and not ended
    std::array<uint32_t, kMaxPassMembers> runs_of{};  // of each member
    uint32_t busy = 0;                                // bit i: member i has such
    uint32_t away = 0;  // bit i: member i's last run has ended, and it has not come back
    policies::Time expected_until = 0;  // that those come back at once
    // What one decision has seen of it: ready runs, by the decision's number.
    struct Candidates {
      uint64_t decision = 0;   // 0: none yet
      uint32_t in_flight = 0;  // ops of their queues
      bool deep = false;       // of one of these queues two or more
      uint32_t members = 0;    // bit i: member i is among them
      bool together = false;   // enough members are at work for a pass
      int32_t ready = -1;      // where the first of them is in the snapshot; -1: it is not
    } candidates;
  };
  std::array<OfClass, policies::kPriorityCount> classes;
  uint32_t together = 0;  // of all runs, those in the pass
  uint16_t lanes = 0;     // bit i: together on lane i, since the first of these
};

// Programs that are the same but for their state, as one. Its arena has each slot once for each
// member, one below the other, so that a matrix with rows of a batch has the rows of all members.
// Ops that compute each row alike, weights being the same, are done once for all of these. All
// else, as what reads a cache, is done for each member that takes part.
//
// Never changes but for what is mutable; read by the threads that run it.
struct Pass {
  static constexpr int8_t kAll = -1;

  // All ops; its bindings have the bytes of all members. An op that each member has is there once
  // for each, one behind the other.
  Program program;
  std::vector<int8_t> owners;  // by op: its member, or kAll
  uint32_t member_count = 0;
  std::array<const Program*, kMaxPassMembers> members{};  // to be told apart, not to be looked at
  uint64_t shared_bytes = 0;  // that a run reads and one more in the pass does not read again
  // Of one run, two, and so on; 0 us: nobody has found out.
  std::array<policies::RunCost, kMaxPassMembers> run_costs{};

  // Runs of so many members at least go together: of fewer it takes longer than beside each other.
  uint32_t least_together = 2;

  // Members that are still registered. The control thread's.
  mutable uint32_t members_left = 0;
  mutable PassUse use;
  // Of `use`, for who frees the pass. Release, by the dispatcher, after its last look at the run;
  // pairs with the control thread's acquire.
  mutable std::atomic<uint32_t> runs{0};
  // The dispatcher has learnt that the pass is no program's any more: nothing more is launched in
  // it. Release; pairs with the control thread's acquire.
  mutable std::atomic<bool> given_up{false};

  // REQUIRES: it is one of the members.
  uint32_t MemberOf(const Program& one) const {
    return static_cast<uint32_t>(std::find(members.begin(), members.end(), &one) - members.begin());
  }
  // Where the ops have binding `index` of `member`.
  Address StagedOf(uint32_t member, size_t index) const {
    return program.bindings[index].staged + member * BindingBytes(index);
  }
  uint64_t BindingBytes(size_t index) const { return program.bindings[index].bytes / member_count; }
};

// Whether it is a run that is launched in a pass.
inline bool InPass(const Op& op) {
  return op.kind == CONCERT_OP_PROGRAM && op.program.pass != nullptr;
}

struct PassMember {
  const Program* program;
  ProgramSource source;  // that it was made of
};

// An operand of what is done once for all that each member has in memory of its own, as logits that
// it keeps: the op has those of all in a slot of the pass.
struct StagedOperand {
  uint32_t op = 0;               // of a member
  uint32_t slot = 0;             // behind those of the program
  uint16_t at = 0;               // where in the op's body it is
  uint64_t bytes = 0;            // a member's
  bool in = false, out = false;  // copied to the slot ahead of the op; from there behind it
};

// What can be said before the pass has memory.
struct PassPlan {
  ArenaPlan arena;                    // its slots hold those of all members
  std::vector<bool> wide;             // by op of a member: once for all
  std::vector<StagedOperand> staged;  // by op
  uint64_t shared_bytes = 0;          // as Pass has it
};

// Pure. REQUIRES: 2 to kMaxPassMembers members, whose programs are registered. FAILED_PRECONDITION,
// saying which op differs, if they are not the same but for their state and weights.
absl::StatusOr<PassPlan> PlanPass(std::span<const PassMember> members);

// The pass with its arena at `arena`. REQUIRES: `plan` is of the same members, and `arena` is a
// multiple of kArenaAlignment with plan.arena.bytes bytes.
absl::StatusOr<std::unique_ptr<Pass>> BindPass(std::span<const PassMember> members,
                                               const PassPlan& plan, Address arena);

// The same for programs whose pass reads the same weights.
uint64_t HashForPass(const Program& program);

// What a pass of the program with its like would share at most.
uint64_t MostShared(const Program& program);

// Of runs of a pass together. REQUIRES: at least one.
policies::Work WorkOfPass(const Pass& pass, std::span<const Op* const> runs);

// Runs on the CPU. REQUIRES: runs of the pass's members, each at most once.
void ComputePass(const Pass& pass, std::span<const Op* const> runs);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_PASS_H_
