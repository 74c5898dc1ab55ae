#include "policies/baselines/grouped.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "policies/cost/cost_memo.h"
#include "policies/cost/plan_writer.h"
#include "policies/seam/classes.h"

namespace concert::policies {
namespace {

bool IsCollective(const ReadyOp& op) { return op.work.runs_on == RunsOn::kLinks; }

// Whether launches leave a running collective the SMs that are reserved for it.
enum class Sms : uint8_t { kAll, kBesideCollectives };

class GroupedPolicy final : public Policy {
 public:
  GroupedPolicy(const PolicyInputs& inputs, Sms sms)
      : memo_(inputs.device),
        sm_count_(inputs.device.sm_count),
        sms_(sms),
        compiler_(inputs.MakeCompiler()) {}

  // One launch: what the first ready op can share one with, or the op alone. The others have their
  // turn in the next decision. Where collectives have SMs of their own, they go first.
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    PlanWriter writer(snapshot, memo_, plan);
    if (snapshot.ready.empty()) return;
    if (sms_ == Sms::kBesideCollectives && AddCollectives(snapshot, writer, plan)) {
      return writer.Finish(Reason::kCollective, false);
    }
    const ReadyOp& first = snapshot.ready[0];
    const bool grouped = compiler_ != nullptr && first.work.groupable();
    if (!grouped || !AddGroup(snapshot, writer, plan)) {
      writer.Add(0, Form::kSingle, IsCollective(first) ? kCollectiveLane : LaneOf(first));
      plan.launches[0].sm_budget = BudgetOf(snapshot);
    }
    writer.Finish(snapshot.ready.size() == 1 ? Reason::kOnlyOneReady : Reason::kPolicyOrder, false);
  }

  void Reclaim() override {
    if (compiler_ != nullptr) compiler_->Reclaim();
  }

 private:
  static Lane LaneOf(const ReadyOp& op) { return SerialLaneOf(ClassOf(op.priority)); }

  // 0: all SMs.
  uint16_t BudgetOf(const Snapshot& snapshot) const {
    if (sms_ == Sms::kAll || snapshot.reserved_sms == 0) return 0;
    return static_cast<uint16_t>(std::max(1, sm_count_ - snapshot.reserved_sms));
  }

  // False if there are none.
  static bool AddCollectives(const Snapshot& snapshot, PlanWriter& writer, const Plan& plan) {
    for (size_t i = 0; i < snapshot.ready.size() && !writer.full(); ++i) {
      if (IsCollective(snapshot.ready[i]))
        writer.Add(static_cast<int>(i), Form::kSingle, kHighCollectiveLane);
    }
    return !plan.empty();
  }

  // False if there is no work list for them.
  bool AddGroup(const Snapshot& snapshot, PlanWriter& writer, Plan& plan) {
    uint16_t count = 0;
    uint64_t repack_bytes = 0;
    float serial_us = 0;
    const ReadyOp& first = snapshot.ready[0];
    for (size_t i = 0; i < snapshot.ready.size(); ++i) {
      const Work& work = snapshot.ready[i].work;
      if (!work.groupable() || work.dtype != first.work.dtype) continue;
      if (snapshot.ready[i].priority != first.priority) continue;
      if (repack_bytes + work.repack_bytes > compiler_->max_repack_bytes()) continue;
      repack_bytes += work.repack_bytes;
      serial_us += static_cast<float>(writer.CostOfReady(static_cast<int>(i)).solo_us);
      problems_[count] = Problem::Of(work);
      plan.ops[count++] = static_cast<uint16_t>(i);
    }
    const Lane lane = LaneOf(first);
    const bool busy = snapshot.lanes[lane].in_flight > 0;
    const uint16_t sm_budget = BudgetOf(snapshot);
    const WorkList* work_list = compiler_->Compile(
        {problems_.data(), count}, sm_budget, busy ? GroupGoal::kThroughput : GroupGoal::kLatency);
    if (work_list == nullptr) return false;
    const float predicted_us = work_list->predicted_us + compiler_->RepackUs(repack_bytes);
    plan.launches[plan.launch_count++] = {.first = 0,
                                          .count = count,
                                          .form = Form::kGroup,
                                          .lane = lane,
                                          .sm_budget = sm_budget,
                                          .degree = DegreeOf(count),
                                          .work_list = work_list,
                                          .predicted_us = predicted_us};
    plan.op_count = count;
    writer.AddTimes(predicted_us, serial_us);
    return true;
  }

  CostMemo memo_;
  const int sm_count_;
  const Sms sms_;
  const std::unique_ptr<WorkListCompiler> compiler_;
  std::array<Problem, kMaxReady> problems_;
};

}  // namespace

std::unique_ptr<Policy> MakeGrouped(const PolicyInputs& inputs) {
  return std::make_unique<GroupedPolicy>(inputs, Sms::kAll);
}

std::unique_ptr<Policy> MakeStaticSplit(const PolicyInputs& inputs) {
  return std::make_unique<GroupedPolicy>(inputs, Sms::kBesideCollectives);
}

}  // namespace concert::policies
