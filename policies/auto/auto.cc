#include "policies/auto/auto.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "policies/auto/budget_choice.h"
#include "policies/auto/groups.h"
#include "policies/auto/scope.h"
#include "policies/auto/side_by_side.h"
#include "policies/auto/sm_budgets.h"
#include "policies/auto/split/launch_split.h"
#include "policies/auto/split_chooser.h"
#include "policies/cost/plan_writer.h"
#include "policies/cost/resources.h"
#include "policies/seam/classes.h"
#include "policies/seam/lane_book.h"

namespace concert::policies {
namespace {

// Why a plan without ops of a scope is as it is.
Reason OthersReason(const Snapshot& snapshot) {
  const bool collective =
      std::any_of(snapshot.ready.begin(), snapshot.ready.end(),
                  [](const ReadyOp& op) { return op.work.runs_on == RunsOn::kLinks; });
  if (collective) return Reason::kCollective;
  return snapshot.ready.size() == 1 ? Reason::kOnlyOneReady : Reason::kPolicyOrder;
}

Reason ReasonOf(const Plan& plan, const Scope& scope) {
  const std::span<const ReadyOp> ready = scope.snapshot->ready;
  const PlannedLaunch& last = plan.launches[plan.launch_count - 1];
  const bool together =
      std::any_of(plan.launches.begin(), plan.launches.begin() + plan.launch_count,
                  [](const PlannedLaunch& launch) { return launch.count > 1; });
  if (together || last.form == Form::kStreams) return Reason::kTogetherFaster;
  if (ready.size() == 1) return Reason::kOnlyOneReady;
  const bool lower_class_waits = ClassOf(ready.back().priority) > scope.priority_class;
  if (scope.count() == 1 && lower_class_waits) return Reason::kPriorityFirst;
  return Reason::kTogetherNotFaster;
}

class AutoPolicy final : public Policy {
 public:
  explicit AutoPolicy(const PolicyInputs& inputs)
      : budgets_(inputs.device, inputs.tuned.get()), chooser_(inputs, budgets_) {}

  void Decide(const Snapshot& snapshot, Plan& plan) override;

  void Reclaim() override { chooser_.Reclaim(); }

  void Learn(const Outcome& outcome) override { stats_.corrected += chooser_.Learn(outcome); }

  void UseTuned(std::shared_ptr<const TunedTable> tuned) override {
    budgets_.UseTuned(tuned.get());
    chooser_.UseTuned(std::move(tuned));
  }

  PolicyStats stats() const override { return stats_; }

 private:
  LaneBook& LanesOf(const Snapshot& snapshot) {
    return lanes_.has_value() ? *lanes_ : lanes_.emplace(snapshot);
  }
  int AddOthers(const Snapshot& snapshot, const RunningCompute& running, PlanWriter& writer);
  void AddIfHarmless(const Snapshot& snapshot, PlanWriter& writer, Plan& plan);
  void Write(const LaunchSplit& split, int sm_budget, PlanWriter& writer, Plan& plan);
  int WriteSteps(const LaunchSplit& split, int sm_budget, PlanWriter& writer, Plan& plan) const;

  SmBudgets budgets_;
  SplitChooser chooser_;
  ClassHistory history_;
  PolicyStats stats_;

  // Of the decision at hand.
  std::optional<LaneBook> lanes_;  // looked at when the first is taken: groups take none
  ReadyCompute compute_;
  Scope scope_;
};

void AutoPolicy::Decide(const Snapshot& snapshot, Plan& plan) {
  CostMemo& memo = budgets_.MemoOf(Budget::kAll);
  PlanWriter writer(snapshot, memo, plan);
  if (snapshot.ready.empty()) return;
  chooser_.StartDecision();
  lanes_.reset();
  const RunningCompute running(snapshot.running, snapshot.now);
  const int offered_sms = AddOthers(snapshot, running, writer);
  history_.See(snapshot.now, compute_, running);
  if (compute_.total == 0) return writer.Finish(OthersReason(snapshot), true);

  ChooseScope(snapshot, compute_, running, history_, scope_);
  const bool outranked = running.HigherRuns(scope_.priority_class);
  if (outranked && !scope_.grouped && !scope_.held_long) {
    return AddIfHarmless(snapshot, writer, plan);
  }
  Budget budget = Budget::kAll;
  if (scope_.grouped) {
    LookAtLane(scope_);
    if (scope_.goal == GroupGoal::kThroughput) TakeHalf(budgets_.device(), scope_);
    budget = ChooseBudget(scope_, running, history_, offered_sms, budgets_, chooser_);
    if (scope_.followed) ChooseFirstStep(budget, chooser_, scope_);
  } else {
    LookBeside(memo, LanesOf(snapshot), scope_);
  }
  const LaunchSplit& split = chooser_.Choose(scope_, budget);
  if (scope_.grouped && split.form == Form::kStreams) {
    TakeLanes(split, LanesOf(snapshot), scope_);
  }
  Write(split, budgets_.SmsOf(budget), writer, plan);
}

// Collectives go out at once and ahead of GEMMs, behind whose blocks they would wait; copies
// cost others little. So do programs, each on a lane of its own while there is one: beside each
// other they use what the steps of each leave, which no prediction of one alone shows. But behind
// what runs of a higher class, and behind what of it is to be weighed, a program waits like all
// that keep to no budget. Lists what else runs on SMs. Returns the SMs that a collective which goes
// out now will hold.
int AutoPolicy::AddOthers(const Snapshot& snapshot, const RunningCompute& running,
                          PlanWriter& writer) {
  compute_.Clear();
  int offered_sms = 0;
  int index = 0;
  int highest = kClassCount;  // of those listed
  for (const ReadyOp& op : snapshot.ready) {
    const bool on_sms = op.work.runs_on == RunsOn::kSms;
    const int its_class = ClassOf(op.priority);
    const bool outranked = its_class > highest || running.HigherRuns(its_class);
    if (on_sms && (op.work.steps == 1 || outranked)) {
      highest = std::min(highest, its_class);
      compute_.Add(index, op, op.work.chains() && chooser_.may_group());
    } else if (writer.HasRoomAhead(op.work)) {
      const bool collective = op.work.runs_on == RunsOn::kLinks;
      offered_sms = std::max<int>(offered_sms, op.sms);
      const bool high = op.priority == Priority::kHigh;
      writer.Add(index, Form::kStreams,
                 collective ? kHighCollectiveLane
                            : LanesOf(snapshot).Take(op, high, writer.CostOfReady(index).solo_us));
    }
    ++index;
  }
  return offered_sms;
}

// Beside running work of a higher class a library kernel goes out only if both get all they want.
void AutoPolicy::AddIfHarmless(const Snapshot& snapshot, PlanWriter& writer, Plan& plan) {
  CostMemo& memo = budgets_.MemoOf(Budget::kAll);
  const Resources in_use = ResourcesInUse(snapshot, memo);
  const ReadyOp& first = scope_.op(0);
  const OpCost cost = memo.Of(first.work, scope_.work_hash(0));
  if (!in_use.HaveRoomFor(cost)) {
    return writer.Finish(plan.empty() ? Reason::kHeldBack : OthersReason(snapshot), true);
  }
  const Lane lane = LanesOf(snapshot).Take(first, scope_.high(), cost.solo_us);
  writer.Add(scope_.index[0], Form::kStreams, lane, cost);
  history_.Planned(scope_.priority_class, snapshot.now);
  writer.Finish(Reason::kTogetherFaster, true);
}

void AutoPolicy::Write(const LaunchSplit& split, int sm_budget, PlanWriter& writer, Plan& plan) {
  const Snapshot& snapshot = *scope_.snapshot;
  // What copies and programs take is in the plan's time, too; collectives have plans of their own.
  const std::span<const PlannedLaunch> others = plan.launch_span();
  const bool teaches = std::all_of(others.begin(), others.end(), [](const PlannedLaunch& launch) {
    return IsCollectiveLane(launch.lane);
  });
  const int planned = WriteSteps(split, sm_budget, writer, plan);
  if (planned == 0) return writer.Finish(OthersReason(snapshot), true);
  const uint64_t tag = chooser_.Planned(split);
  if (teaches) plan.tag = tag;
  history_.Planned(scope_.priority_class, snapshot.now);
  ++(chooser_.chosen_anew() ? stats_.unseen : stats_.known);
  stats_.tuned += split.tuned;
  stats_.modelled += static_cast<uint64_t>(planned - std::min<int>(planned, split.tuned));
  writer.Finish(ReasonOf(plan, scope_), true);
}

// As many as the plan has room for. Returns how many ops these have.
int AutoPolicy::WriteSteps(const LaunchSplit& split, int sm_budget, PlanWriter& writer,
                           Plan& plan) const {
  const uint16_t begin = plan.op_count;
  for (const Step& step : split.step_span()) {
    if (plan.launch_count + step.launches() > Plan::kMaxLaunches) break;
    for (int i = 0; i < step.launches(); ++i) {
      PlannedLaunch& launch = plan.launches[plan.launch_count++] = step;
      launch.first = static_cast<uint16_t>(plan.op_count + i);
      launch.lane = scope_.serial_lane;
      launch.sm_budget = sm_budget;
      launch.degree = DegreeOf(step.count);
      if (step.form != Form::kStreams) continue;
      launch.count = 1;
      launch.lane = scope_.lane[i];
    }
    plan.op_count = static_cast<uint16_t>(plan.op_count + step.count);
    writer.AddTimes(step.predicted_us, step.serial_us);
  }
  const int planned = plan.op_count - begin;
  for (int i = 0; i < planned; ++i) plan.ops[begin + i] = scope_.index[split.order[i]];
  return planned;
}

}  // namespace

std::unique_ptr<Policy> MakeAuto(const PolicyInputs& inputs) {
  return std::make_unique<AutoPolicy>(inputs);
}

}  // namespace concert::policies
