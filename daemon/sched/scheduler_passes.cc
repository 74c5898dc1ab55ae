// The part of the scheduler that puts runs together which read the same weights
// (kernels/program/pass.h). Policies see them as one op.
//
// Of one class, one pass is under way: what becomes ready meanwhile goes together behind it, so
// that weights are read once for all of it. What is ready while none is under way goes at once, but
// for a moment in which members of the last one may come back. And while too few members are at
// work for that to be faster, all of it is as if there were no pass.
#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "daemon/check.h"
#include "daemon/sched/scheduler.h"
#include "kernels/program/pass.h"
#include "policies/seam/hash.h"

namespace concert::daemon {
namespace {

// How long a pass waits for members of the one that has just ended: clients that have one run in
// flight at a time come back within some 15 us. Without it those who are ready go at once and the
// others one pass later, for ever. A sixteenth of what the last took, so that who waits loses no
// more than that of its time; and at most 50 us.
constexpr Time kReturnShare = 16;
constexpr Time kLongestReturnNs = 50'000;

kernels::PassUse::OfClass& UseOf(const OpSlot& slot) {
  return slot.pass->use.classes[policies::IndexOf(slot.priority)];
}
uint32_t MemberOf(const OpSlot& slot) { return slot.pass->MemberOf(*slot.op.program.program); }

// Whether members that run, are ready, or are expected back are enough for passes. Two are whoever
// comes.
bool AreEnough(const OpSlot& slot, Time now) {
  if (slot.pass->least_together <= 2) return true;
  const kernels::PassUse::OfClass& use = UseOf(slot);
  const uint32_t expected = now < use.expected_until ? use.away : 0;
  const auto at_work =
      static_cast<uint32_t>(std::popcount(use.busy | use.candidates.members | expected));
  return at_work >= slot.pass->least_together;
}

}  // namespace

// Launched ops of the queue that have not ended: 2 stands for more, too.
uint32_t Scheduler::InFlight(const Queue& queue) const {
  if (queue.head == queue.front) return 0;
  return pool_[queue.head].next == queue.front ? 1 : 2;
}

// Notes the pass of a candidate, if it has one. True if it goes with a candidate before it, beside
// whose launch it needs no room.
bool Scheduler::JoinsPass(const Queue& queue, OpSlot& slot) {
  if (slot.op.kind != CONCERT_OP_PROGRAM) return false;
  // Acquire: pairs with the control thread's release, when the pass is ready. Once a decision, for
  // which it is then the same.
  slot.pass = slot.op.program.program->pass.load(std::memory_order_acquire);
  if (slot.pass == nullptr) return false;
  kernels::PassUse::OfClass& use = UseOf(slot);
  const uint32_t member = 1u << MemberOf(slot);
  use.away &= ~member;
  const bool first = use.candidates.decision != decision_;
  if (first) use.candidates = {.decision = decision_};
  use.candidates.members |= member;
  const uint32_t in_flight = InFlight(queue);
  use.candidates.in_flight += in_flight;
  use.candidates.deep |= in_flight > 1;
  passes_seen_ = true;
  return !first;
}

// Drops candidates for which a pass under way is to end first. Those go behind it at once that
// follow all that is in it: nobody is left for whom the next pass could wait. And so do all while
// too few members are at work for passes.
void Scheduler::HoldBackForPasses(Time now) {
  members_expected_ = false;
  if (!passes_seen_) return;
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    const OpSlot& slot = pool_[candidate.op];
    if (slot.pass == nullptr) return false;
    kernels::PassUse::OfClass& use = UseOf(slot);
    use.candidates.together = AreEnough(slot, now);
    if (!use.candidates.together) return false;
    if (use.runs > 0) return use.candidates.deep || use.candidates.in_flight != use.runs;
    const bool expects = use.away != 0 && now < use.expected_until;
    members_expected_ |= expects;
    return expects;
  });
}

// Whether the candidate goes with one that the snapshot has, or, being another run of the same
// program, is to go later. Else it is the first of its pass, which the snapshot has next.
bool Scheduler::GoesWithAnother(OpId op) {
  const OpSlot& slot = pool_[op];
  if (slot.pass == nullptr || !UseOf(slot).candidates.together) return false;
  int32_t& first = UseOf(slot).candidates.ready;
  if (first < 0) {
    first = static_cast<int32_t>(snapshot_ready_.size());
    return false;
  }
  const auto is_same = [&](OpId other) {
    return pool_[other].op.program.program == slot.op.program.program;
  };
  const auto ready = static_cast<uint16_t>(first);
  const bool again = is_same(snapshot_ready_[ready].op) ||
                     std::any_of(companions_.begin(), companions_.end(),
                                 [&](const Companion& one) { return is_same(one.op); });
  if (!again) companions_.push_back({ready, op});
  return true;
}

// Runs that go together are to policies one op, whose work is that of all.
void Scheduler::SumUpPasses() {
  if (companions_.empty()) return;
  for (uint16_t i = 0; i < snapshot_ready_.size(); ++i) {
    policies::ReadyOp& ready = snapshot_ready_[i];
    std::array<const Op*, kernels::kMaxPassMembers> runs = {&pool_[ready.op].op};
    size_t count = 1;
    for (const Companion& one : companions_) {
      if (one.ready == i) runs[count++] = &pool_[one.op].op;
    }
    if (count == 1) continue;
    ready.work = kernels::WorkOfPass(*pool_[ready.op].pass, std::span(runs).first(count));
    ready.work_hash = policies::HashWork(ready.work);
  }
}

// What each of those that go as this ready op would take of the GPU if they were alone on it.
float Scheduler::ShareUs(uint16_t ready) {
  const policies::ReadyOp& op = snapshot_.ready[ready];
  const auto companions = std::count_if(companions_.begin(), companions_.end(),
                                        [&](const Companion& one) { return one.ready == ready; });
  return static_cast<float>(costs_.Of(op.work, op.work_hash).solo_us) /
         static_cast<float>(1 + companions);
}

// Adds to a launch of one ready op those that go with it.
void Scheduler::AddCompanions(uint16_t ready, kernels::LaunchRequest& launch, Actions& actions) {
  const float share_us = ShareUs(ready);
  for (const Companion& one : companions_) {
    if (one.ready != ready) continue;
    launch.order_mask |= TakeFromQueue(one.op, OpState::kLaunched, share_us);
    actions.AddOp(one.op);
    ++launch.planned.count;
  }
  if (launch.planned.count == 1) return;
  for (const OpId id : actions.OpsOf(launch)) {
    OpSlot& slot = pool_[id];
    slot.op.program.pass = slot.pass;
    slot.op.program.member = slot.pass->MemberOf(*slot.op.program.program);
  }
  // The pass before has the same arena.
  launch.order_mask |= pool_[actions.OpsOf(launch)[0]].pass->use.lanes;
}

// A launched run with a pass, in it or alone.
void Scheduler::CountRun(const OpSlot& slot) {
  if (slot.pass == nullptr) return;
  kernels::PassUse::OfClass& use = UseOf(slot);
  if (use.runs++ == 0) use.away = 0;  // who has not come by now is not expected
  const uint32_t member = MemberOf(slot);
  ++use.runs_of[member];
  use.busy |= 1u << member;
  slot.pass->runs.fetch_add(1, std::memory_order_relaxed);
  if (slot.op.program.pass == nullptr) return;
  ++slot.pass->use.together;
  slot.pass->use.lanes |= static_cast<uint16_t>(1u << slot.flight.lane);
}

void Scheduler::EndRun(const OpSlot& slot, Time now) {
  if (slot.pass == nullptr) return;
  kernels::PassUse::OfClass& use = UseOf(slot);
  const uint32_t member = MemberOf(slot);
  --use.runs;
  if (--use.runs_of[member] == 0) use.busy &= ~(1u << member);
  use.away |= 1u << member;
  use.expected_until =
      now + std::min((now - slot.flight.launched_at) / kReturnShare, kLongestReturnNs);
  if (slot.op.program.pass != nullptr && --slot.pass->use.together == 0) slot.pass->use.lanes = 0;
  // Release: pairs with the acquire of who frees the pass. The last look at it.
  slot.pass->runs.fetch_sub(1, std::memory_order_release);
}

}  // namespace concert::daemon
