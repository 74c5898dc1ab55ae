// Writes a plan and keeps its predictions: what every policy does the same way.
#ifndef CONCERT_POLICIES_COST_PLAN_WRITER_H_
#define CONCERT_POLICIES_COST_PLAN_WRITER_H_

#include <algorithm>

#include "policies/cost/cost_memo.h"
#include "policies/seam/plan.h"
#include "policies/seam/snapshot.h"

namespace concert::policies {

class PlanWriter {
 public:
  // Clears `plan`.
  PlanWriter(const Snapshot& snapshot, CostMemo& memo, Plan& plan)
      : snapshot_(snapshot), memo_(memo), plan_(plan), set_(memo.device()) {
    plan.Clear();
  }

  bool full() const { return plan_.full(); }
  // What goes out ahead of others without being weighed against them, as copies do, may take half
  // of a plan: who keeps many ready would keep the others out of every plan. Collectives may take
  // half of the rest.
  bool HasRoomAhead(const Work& work) const {
    const int left = Plan::kMaxLaunches - plan_.launch_count;
    return left > Plan::kMaxLaunches / (work.runs_on == RunsOn::kLinks ? 4 : 2);
  }
  const OpCost& CostOfReady(int index) {
    return memo_.Of(snapshot_.ready[index].work, snapshot_.ready[index].work_hash);
  }

  // Adds one launch of snapshot.ready[index]. REQUIRES: !full().
  void Add(int index, Form form, Lane lane) { Add(index, form, lane, CostOfReady(index)); }
  void Add(int index, Form form, Lane lane, const OpCost& cost) {
    // A collective starts when its last rank is there, so the scheduler gives it a plan of its own.
    if (snapshot_.ready[index].work.runs_on != RunsOn::kLinks) set_.Add(cost);
    plan_.AddSingle(static_cast<uint16_t>(index), form, lane, static_cast<float>(cost.solo_us));
    ++co_run_launches_;
  }

  // The time of launches that the policy adds to the plan itself after all Adds, and that of their
  // ops one after the other with the best library kernels. They run beside what Add has added.
  void AddTimes(float predicted_us, float serial_us) {
    predicted_us_ += predicted_us;
    serial_us_ += serial_us;
  }

  // The last step: the reason, and the predictions for launches that run `together` or one by one.
  // Side by side, each launch is taken to be slowed in the same ratio, but to end no later than the
  // plan.
  void Finish(Reason reason, bool together) {
    plan_.reason = reason;
    const auto serial_us = static_cast<float>(set_.SerialUs());
    const float added_us = together ? static_cast<float>(set_.CoRunUs()) : serial_us;
    plan_.serial_us = serial_us + serial_us_;
    plan_.predicted_us = std::max(added_us, predicted_us_);
    if (!together || set_.LongestUs() == 0) return;
    const double slowdown = std::max(1.0, set_.CoRunUs() / set_.LongestUs());
    for (int i = 0; i < co_run_launches_; ++i) {
      if (plan_.launches[i].form == Form::kStreams) {
        plan_.launches[i].predicted_us *= static_cast<float>(slowdown);
      }
    }
  }

 private:
  const Snapshot& snapshot_;
  CostMemo& memo_;
  Plan& plan_;
  CoRunSet set_;
  int co_run_launches_ = 0;
  float predicted_us_ = 0, serial_us_ = 0;  // AddTimes
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_PLAN_WRITER_H_
