#include "policies/auto/auto.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "policies/auto/held_by_collectives.h"
#include "policies/auto/launch_split.h"
#include "policies/auto/plan_cache.h"
#include "policies/cost/corrections.h"
#include "policies/cost/cost_memo.h"
#include "policies/cost/cost_model.h"
#include "policies/cost/plan_writer.h"
#include "policies/cost/resources.h"
#include "policies/seam/classes.h"
#include "policies/seam/lane_book.h"
#include "policies/seam/window.h"

namespace concert::policies {
namespace {

constexpr int kHighClass = ClassOf(Priority::kHigh);
constexpr int kMaxSideBySide = kNormalLaneCount;

// Which SMs a plan may use. kLate: all, but those of collectives only when they are expected to
// end.
enum class Budget : uint8_t { kAll, kBesideReserve, kReserve, kBesideCollective, kLate };
constexpr int kMemoCount = 4;  // kLate counts costs as kAll

// SMs that are late by less might as well not be: a block of a collective and one of a launch take
// about as long to follow one another.
constexpr float kLeastLateUs = 8;
// How late SMs are in steps of a quarter of an octave, so that about the same is planned as the
// same.
constexpr float kLateSteps = 4;

// Less work than that is not shared out: what a client takes to come back with more once something
// has ended, and a launch. This and what follows: ADR 13, "What the constants rest on".
constexpr double kLeastShareUs = 40;
// Ready over running work that is shared out: a client that keeps batches submitted would have
// three of them launched and then one, for ever. Always sharing out leaves batches cut in two and
// ever new signatures.
constexpr double kMaxImbalance = 2;

// What a step of a chain gains that starts beside the end of the one before. Of the longest steps
// that predictions of chains were fitted to, that is little.
constexpr float kOverlapUs = 2, kMaxStepUs = 60;

// Tags of a signature's ops.
constexpr uint8_t kSameSession = 1, kUrgent = 2, kTail = 128;

// Whether the next op of its queue could start beside its end.
bool IsFollowed(const Snapshot& snapshot, const ReadyOp& op) {
  if (!op.work.chains()) return false;
  const Followers::Iterator next = FollowersOf(snapshot, op).begin();
  return next != std::default_sentinel && next->work->chains() && !next->waits_elsewhere;
}

class AutoPolicy final : public Policy {
 public:
  explicit AutoPolicy(const PolicyInputs& inputs)
      : device_(inputs.device),
        tuned_(inputs.tuned),
        sms_{0, std::max(1, device_.sm_count - ReserveOf(device_.sm_count)),
             ReserveOf(device_.sm_count), 0},
        memos_{CostMemo(device_, sms_[0], tuned_.get()), CostMemo(device_, sms_[1], tuned_.get()),
               CostMemo(device_, sms_[2], tuned_.get()), CostMemo(device_, sms_[3], tuned_.get())},
        compiler_(inputs.MakeCompiler()),
        splitter_(device_, tuned_.get(), compiler_.get()) {}

  void Decide(const Snapshot& snapshot, Plan& plan) override;

  void Reclaim() override {
    if (compiler_ != nullptr) compiler_->Reclaim();
  }

  void Learn(const Outcome& outcome) override {
    if (!corrections_.Learn(outcome.tag, outcome.predicted_us, outcome.actual_us)) return;
    cache_.Drop(PlanTag::SignatureOf(outcome.tag));
    ++stats_.corrected;
  }

  void UseTuned(std::shared_ptr<const TunedTable> tuned) override {
    tuned_ = std::move(tuned);
    ++table_;
    for (CostMemo& memo : memos_) memo.UseTuned(tuned_.get());
    splitter_.UseTuned(tuned_.get());
  }

  PolicyStats stats() const override { return stats_; }

 private:
  // What is planned in this decision: ops that run on SMs.
  struct Scope {
    int priority_class = 0;
    bool grouped = false;   // one of them can be part of a launch that takes part in chains
    bool deadline = false;  // one of them has one
    bool held_long = false;
    std::span<const uint16_t> index;  // into Snapshot::ready
    std::array<bool, kMaxReady> urgent;
    GroupGoal goal = GroupGoal::kLatency;
    Lane serial_lane = 0;                                     // of what goes out one by one
    std::array<Lane, kMaxSideBySide> lane;                    // if side by side
    std::array<Tail, kFirstHighLane + kHighLaneCount> tails;  // beside which library kernels go out
    int tail_count = 0;
    bool followed = false;  // on an idle lane: by what could start beside the end of one of them

    int count() const { return static_cast<int>(index.size()); }
    bool high() const { return priority_class == kHighClass; }
    int lane_limit() const { return high() ? kHighLaneCount : kMaxSideBySide; }
    std::span<const Tail> tail_span() const {
      return {tails.data(), static_cast<size_t>(tail_count)};
    }
  };
  // The last op launched on each lane that runs on SMs.
  using LaneTails = std::array<const RunningOp*, kFirstHighLane + kHighLaneCount>;

  LaneBook& LanesOf(const Snapshot& snapshot) {
    return lanes_.has_value() ? *lanes_ : lanes_.emplace(snapshot);
  }
  static Reason OthersReason(const Snapshot& snapshot);
  static Reason ReasonOf(const Plan& plan, const Snapshot& snapshot, const Scope& scope);
  static uint64_t HashOf(const ReadyOp& op) {
    return op.work_hash != 0 ? op.work_hash : HashWork(op.work);
  }
  // Whether the i-th op of the scope is of the session of the one before it.
  bool SameSession(const Snapshot& snapshot, int i) const {
    return i > 0 &&
           snapshot.ready[scope_.index[i]].session == snapshot.ready[scope_.index[i - 1]].session;
  }
  CostMemo& MemoOf(Budget budget) {
    return memos_[budget == Budget::kLate ? 0 : static_cast<int>(budget)];
  }
  int SmsOf(Budget budget) const {
    return budget == Budget::kLate ? 0 : sms_[static_cast<int>(budget)];
  }
  Site SiteOf(Budget budget) const {
    const SmSet sms = budget == Budget::kLate ? SmSet::Late(held_.sms, LateUs()) : SmsOf(budget);
    return {sms, scope_.lane_limit(), scope_.goal, scope_.tail_span()};
  }
  float LateUs() const { return std::exp2(static_cast<float>(late_step_) / kLateSteps); }

  void AddOthers(const Snapshot& snapshot, const RunningCompute& running, PlanWriter& writer);
  void ChooseScope(const Snapshot& snapshot, const RunningCompute& running);
  void LookAtLane(const Snapshot& snapshot);
  void TakeHalf(const Snapshot& snapshot);
  void AddIfHarmless(const Snapshot& snapshot, PlanWriter& writer, Plan& plan);

  Budget ChooseBesideCollectives(const Snapshot& snapshot);
  void UseSms(Budget budget, int sms);
  Budget ChooseBudget(const Snapshot& snapshot, const RunningCompute& running);
  void ChooseFirstStep(const Snapshot& snapshot, Budget budget);
  LaneTails TailsOf(const Snapshot& snapshot) const;
  void LookBeside(const Snapshot& snapshot);

  LaunchSplit& Choose(const Snapshot& snapshot, Budget budget);
  LaunchSplit& FindOrSplit(const Snapshot& snapshot, Budget budget);
  void Sign(const Snapshot& snapshot, Budget budget);
  bool MarkUrgent(const Snapshot& snapshot, Budget budget, const LaunchSplit& split);
  LaunchSplit* Known();
  uint64_t TimesHash() const;
  LaunchSplit& Remember(const LaunchSplit& split);
  void Write(const Snapshot& snapshot, const LaunchSplit& split, int sm_budget, PlanWriter& writer,
             Plan& plan);

  const DeviceModel device_;
  std::shared_ptr<const TunedTable> tuned_;
  uint32_t table_ = 0;               // counts the tables there have been
  std::array<int, kMemoCount> sms_;  // by Budget
  std::array<CostMemo, kMemoCount> memos_;
  const std::unique_ptr<WorkListCompiler> compiler_;  // null: no group launches
  LaunchSplitter splitter_;
  PlanCache cache_;
  Corrections corrections_;
  ClassHistory history_;
  PolicyStats stats_;

  // Of the decision at hand.
  std::optional<LaneBook> lanes_;  // looked at when the first is taken: groups take none
  ReadyCompute compute_;
  int offered_sms_ = 0;  // that a collective which goes out now will hold
  Held held_;
  uint32_t late_step_ = 0;  // Budget::kLate
  Scope scope_;
  Signature signature_;
  Corrections::Subject subject_;
  std::array<SplitOp, kMaxReady> ops_;
  LaunchSplit chosen_;
  bool chosen_anew_ = false;
  std::array<uint16_t, kMaxReady> kept_;  // Scope::index, if it is not all of a class
};

void AutoPolicy::Decide(const Snapshot& snapshot, Plan& plan) {
  PlanWriter writer(snapshot, MemoOf(Budget::kAll), plan);
  if (snapshot.ready.empty()) return;
  chosen_anew_ = false;
  lanes_.reset();
  const RunningCompute running(snapshot.running, snapshot.now);
  AddOthers(snapshot, running, writer);
  history_.See(snapshot.now, compute_, running);
  if (compute_.total == 0 || writer.full()) return writer.Finish(OthersReason(snapshot), true);

  ChooseScope(snapshot, running);
  const bool outranked = running.HigherRuns(scope_.priority_class);
  if (outranked && !scope_.grouped && !scope_.held_long) {
    return AddIfHarmless(snapshot, writer, plan);
  }
  Budget budget = Budget::kAll;
  scope_.tail_count = 0;
  if (scope_.grouped) {
    LookAtLane(snapshot);
    if (scope_.goal == GroupGoal::kThroughput) TakeHalf(snapshot);
    budget = ChooseBudget(snapshot, running);
    if (scope_.followed) ChooseFirstStep(snapshot, budget);
  } else {
    LookBeside(snapshot);
  }
  const LaunchSplit& split = Choose(snapshot, budget);
  if (scope_.grouped && split.form == Form::kStreams) {
    for (int i = 0; i < split.op_count; ++i) {
      const ReadyOp& op = snapshot.ready[scope_.index[split.order[i]]];
      scope_.lane[i] = LanesOf(snapshot).Take(op, scope_.high(), split.steps[0].predicted_us);
    }
  }
  Write(snapshot, split, SmsOf(budget), writer, plan);
}

// Collectives go out at once and ahead of GEMMs, behind whose blocks they would wait; copies
// cost others little. So do programs, each on a lane of its own while there is one: beside each
// other they use what the steps of each leave, which no prediction of one alone shows. Lists what
// else runs on SMs.
void AutoPolicy::AddOthers(const Snapshot& snapshot, const RunningCompute& running,
                           PlanWriter& writer) {
  compute_.Clear();
  offered_sms_ = 0;
  int index = 0;
  for (const ReadyOp& op : snapshot.ready) {
    const bool is_program =
        op.work.steps > 1 && !running.HigherRuns(ClassOf(op.priority)) && !writer.full();
    if (op.work.runs_on == RunsOn::kSms && !is_program) {
      compute_.Add(index, op, op.work.chains() && compiler_ != nullptr);
    } else if (!writer.full()) {
      const bool collective = op.work.runs_on == RunsOn::kLinks;
      offered_sms_ = std::max<int>(offered_sms_, op.sms);
      const bool high = op.priority == Priority::kHigh;
      writer.Add(index, Form::kStreams,
                 collective ? kHighCollectiveLane
                            : LanesOf(snapshot).Take(op, high, writer.CostOfReady(index).solo_us));
    }
    ++index;
  }
}

Reason AutoPolicy::OthersReason(const Snapshot& snapshot) {
  const bool collective =
      std::any_of(snapshot.ready.begin(), snapshot.ready.end(),
                  [](const ReadyOp& op) { return op.work.runs_on == RunsOn::kLinks; });
  if (collective) return Reason::kCollective;
  return snapshot.ready.size() == 1 ? Reason::kOnlyOneReady : Reason::kPolicyOrder;
}

// The highest class, unless a lower one has been held back for too long. Beside running work of a
// higher class only what keeps to a budget takes part, if there is any.
void AutoPolicy::ChooseScope(const Snapshot& snapshot, const RunningCompute& running) {
  const auto held_ns = [&](int priority_class) {
    const ReadyOp& first = snapshot.ready[compute_.OfClass(priority_class)[0]];
    return history_.HeldNs(priority_class, first.ready_at, snapshot.now);
  };
  int planned = 0;
  while (compute_.classes[planned].count == 0) ++planned;
  for (int lower = planned + 1; lower < kClassCount; ++lower) {
    if (compute_.classes[lower].count > 0 && held_ns(lower) > kMaxHeldNs) planned = lower;
  }
  const ReadyCompute::Class& its = compute_.classes[planned];
  scope_.priority_class = planned;
  scope_.held_long = held_ns(planned) > kMaxHeldNs;
  scope_.grouped = its.grouped > 0;
  scope_.deadline = its.deadline;
  scope_.index = compute_.OfClass(planned);
  const bool groups_only =
      scope_.grouped && its.grouped < its.count && !scope_.held_long && running.HigherRuns(planned);
  if (!groups_only) return;
  int kept = 0;
  for (const uint16_t index : scope_.index) {
    if (snapshot.ready[index].work.chains()) kept_[kept++] = index;
  }
  scope_.index = {kept_.data(), static_cast<size_t>(kept)};
}

// What groups are planned for: throughput behind a launch that none of them waits for, since what
// overlaps it is not late by its own imbalance.
void AutoPolicy::LookAtLane(const Snapshot& snapshot) {
  const Lane lane = scope_.serial_lane = SerialLaneOf(scope_.priority_class);
  const bool busy = snapshot.lanes[lane].in_flight > 0;
  const auto any = [&](auto is) {
    return std::any_of(scope_.index.begin(), scope_.index.end(),
                       [&](uint16_t index) { return is(snapshot.ready[index]); });
  };
  scope_.goal = GroupGoal::kLatency;
  scope_.followed = false;
  if (busy) {
    const bool chained = any([&](const ReadyOp& op) { return op.after == lane; });
    scope_.goal = chained ? GroupGoal::kChain : GroupGoal::kThroughput;
  } else {
    scope_.followed = any([&](const ReadyOp& op) { return IsFollowed(snapshot, op); });
  }
}

// Where much more of the class's work is ready than runs, half of both: while one half runs those
// come back who wait for the other. All that is ready would be planned as a long launch and then a
// short one by turns, and behind the short one nothing is ready in time.
void AutoPolicy::TakeHalf(const Snapshot& snapshot) {
  double running_us = 0, ready_us = 0;
  for (const RunningOp& op : snapshot.running) {
    if (op.work.runs_on != RunsOn::kSms) continue;
    if (ClassOf(op.priority) == scope_.priority_class) running_us += RooflineUs(device_, op.work);
  }
  std::array<double, kMaxReady> until_us;  // of all up to this one
  for (int i = 0; i < scope_.count(); ++i) {
    until_us[i] = ready_us += RooflineUs(device_, snapshot.ready[scope_.index[i]].work);
  }
  if (ready_us <= kMaxImbalance * running_us) return;
  const double half_us = std::max(kLeastShareUs, (running_us + ready_us) / 2);
  const auto end =
      std::upper_bound(until_us.begin(), until_us.begin() + scope_.count(), half_us * (1 + 1e-9));
  scope_.index = scope_.index.first(std::max<size_t>(1, end - until_us.begin()));
}

// Beside running work of a higher class a library kernel goes out only if both get all they want.
void AutoPolicy::AddIfHarmless(const Snapshot& snapshot, PlanWriter& writer, Plan& plan) {
  CostMemo& memo = MemoOf(Budget::kAll);
  const Resources in_use = ResourcesInUse(snapshot, memo);
  const ReadyOp& first = snapshot.ready[scope_.index[0]];
  const OpCost cost = memo.Of(first.work, HashOf(first));
  if (!in_use.HaveRoomFor(cost)) {
    return writer.Finish(plan.empty() ? Reason::kHeldBack : OthersReason(snapshot), true);
  }
  const Lane lane = LanesOf(snapshot).Take(first, scope_.high(), cost.solo_us);
  writer.Add(scope_.index[0], Form::kStreams, lane, cost);
  history_.Planned(scope_.priority_class, snapshot.now);
  writer.Finish(Reason::kTogetherFaster, true);
}

// A launch that ends before the collectives do has the SMs that they leave. A longer one has all:
// those that they hold now take part when they are free.
Budget AutoPolicy::ChooseBesideCollectives(const Snapshot& snapshot) {
  if (held_.near) return Budget::kBesideCollective;
  const Time start = std::max(snapshot.now, snapshot.lanes[scope_.serial_lane].busy_until);
  const float late_us = static_cast<float>(held_.until - start) * 1e-3f;
  if (late_us < kLeastLateUs) return Budget::kAll;
  if (Choose(snapshot, Budget::kBesideCollective).PredictedUs() <= late_us) {
    return Budget::kBesideCollective;
  }
  late_step_ = static_cast<uint32_t>(std::lround(kLateSteps * std::log2(late_us)));
  return Budget::kLate;
}

// Costs under a budget of collectives change with them.
void AutoPolicy::UseSms(Budget budget, int sms) {
  int& its = sms_[static_cast<int>(budget)];
  if (its == sms) return;
  its = sms;
  MemoOf(budget).UseSms(sms);
}

Budget AutoPolicy::ChooseBudget(const Snapshot& snapshot, const RunningCompute& running) {
  const bool outranked = history_.HigherActive(scope_.priority_class, snapshot.now, kActiveNs);
  Budget whole = outranked ? Budget::kBesideReserve : Budget::kAll;
  held_ = HeldByCollectives(snapshot, offered_sms_);
  if (held_.sms > 0 && (!outranked || device_.sm_count - held_.sms < SmsOf(whole))) {
    UseSms(Budget::kBesideCollective, std::max(1, device_.sm_count - held_.sms));
    whole = outranked ? Budget::kBesideCollective : ChooseBesideCollectives(snapshot);
  }
  const Time lower_until = running.LowerUntil(scope_.priority_class);
  if (lower_until <= snapshot.now) return whole;
  const float wait_us = static_cast<float>(lower_until - snapshot.now) * 1e-3f;
  const float reserve_us = Choose(snapshot, Budget::kReserve).all_us;
  return reserve_us <= wait_us + Choose(snapshot, whole).all_us ? Budget::kReserve : whole;
}

// On an idle lane: whether the first step of a chain is planned as the steps behind it are. What is
// best alone may be a library kernel, whose end no step overlaps, or take the SMs on which the next
// would set up; so it must be faster by more than that costs. Long ones stay as they are: they may
// be of pairs of blocks, which take part in no chain.
void AutoPolicy::ChooseFirstStep(const Snapshot& snapshot, Budget budget) {
  const float alone_us = Choose(snapshot, budget).all_us;
  if (alone_us > kMaxStepUs) return;
  scope_.goal = GroupGoal::kChain;
  const float step_us = Choose(snapshot, budget).all_us;
  if (step_us > alone_us + kOverlapUs) scope_.goal = GroupGoal::kLatency;
}

AutoPolicy::LaneTails AutoPolicy::TailsOf(const Snapshot& snapshot) const {
  LaneTails tails{};
  for (const RunningOp& running : snapshot.running) {
    if (running.work.runs_on != RunsOn::kSms || running.lane >= tails.size()) continue;
    const RunningOp*& tail = tails[running.lane];
    if (tail == nullptr || running.launched_at >= tail->launched_at) tail = &running;
  }
  return tails;
}

// Where none is for groups: a lane for each op, and what of its class runs on the lanes. Work of a
// lower class is no reason to wait. What goes one by one goes behind what ends last of the class,
// so that nothing runs beside it.
void AutoPolicy::LookBeside(const Snapshot& snapshot) {
  LaneBook& lanes = LanesOf(snapshot);
  const auto limit = static_cast<size_t>(scope_.lane_limit());
  if (scope_.index.size() > limit) scope_.index = scope_.index.first(limit);
  std::array<int, kLaneCount> follower;
  follower.fill(-1);
  for (int i = 0; i < scope_.count(); ++i) {
    const ReadyOp& op = snapshot.ready[scope_.index[i]];
    const OpCost& cost = MemoOf(Budget::kAll).Of(op.work, HashOf(op));
    scope_.lane[i] = lanes.Take(op, scope_.high(), cost.solo_us);
    follower[scope_.lane[i]] = i;
  }
  const LaneTails tails = TailsOf(snapshot);
  const RunningOp* last = nullptr;
  for (size_t lane = 0; lane < tails.size(); ++lane) {
    const RunningOp* tail = tails[lane];
    if (tail == nullptr || ClassOf(tail->priority) != scope_.priority_class) continue;
    scope_.tails[scope_.tail_count++] = {.work = &tail->work,
                                         .cost = MemoOf(Budget::kAll).Of(tail->work),
                                         .follower = follower[lane]};
    if (IsHighPriority(tail->lane) != scope_.high()) continue;
    if (last == nullptr || tail->expected_end > last->expected_end) last = tail;
  }
  scope_.goal = scope_.tail_count > 0 ? GroupGoal::kThroughput : GroupGoal::kLatency;
  scope_.serial_lane = last == nullptr ? scope_.lane[0] : last->lane;
}

LaunchSplit& AutoPolicy::Choose(const Snapshot& snapshot, Budget budget) {
  std::fill_n(scope_.urgent.begin(), scope_.count(), false);
  LaunchSplit& split = FindOrSplit(snapshot, budget);
  if (!scope_.deadline || !MarkUrgent(snapshot, budget, split)) return split;
  return FindOrSplit(snapshot, budget);
}

// All that the choice depends on.
void AutoPolicy::Sign(const Snapshot& snapshot, Budget budget) {
  const bool late = budget == Budget::kLate;
  const auto sms = static_cast<uint32_t>(late ? held_.sms : SmsOf(budget));
  const uint32_t late_step = late ? late_step_ + 1 : 0;
  signature_.Start(late_step << 20 | sms << 8 | static_cast<uint32_t>(scope_.goal) << 4 |
                   static_cast<uint32_t>(scope_.grouped) << 1 |
                   static_cast<uint32_t>(scope_.high()));
  for (int i = 0; i < scope_.count(); ++i) {
    const ReadyOp& op = snapshot.ready[scope_.index[i]];
    signature_.Add(
        op.work, HashOf(op),
        (SameSession(snapshot, i) ? kSameSession : 0) | (scope_.urgent[i] ? kUrgent : 0));
  }
  for (const Tail& tail : scope_.tail_span()) {
    signature_.Add(*tail.work, HashWork(*tail.work),
                   static_cast<uint8_t>(kTail + 1 + tail.follower));
  }
}

LaunchSplit& AutoPolicy::FindOrSplit(const Snapshot& snapshot, Budget budget) {
  Sign(snapshot, budget);
  const Site site = SiteOf(budget);
  if (LaunchSplit* known = Known()) {
    if (known->form == Form::kGroup) splitter_.KeepLists(signature_.works(), site, *known);
    return *known;
  }
  for (int i = 0; i < scope_.count(); ++i) {
    const ReadyOp& op = snapshot.ready[scope_.index[i]];
    ops_[i] = {.work = &op.work,
               .cost = MemoOf(budget).Of(op.work, HashOf(op)),
               .same_session = SameSession(snapshot, i),
               .urgent = scope_.urgent[i]};
  }
  const std::span<const SplitOp> ops(ops_.data(), static_cast<size_t>(scope_.count()));
  subject_ = {.signature = signature_.hash(), .family = signature_.family()};
  splitter_.Choose(ops, site, corrections_.RatiosOf(subject_), chosen_);
  // What the family taught about longer plans would stay for ever, since short ones teach nothing.
  if (chosen_.PredictedUs() < Corrections::kMinUs && corrections_.Knows(subject_)) {
    subject_.family = Corrections::kNoFamily;
    splitter_.Choose(ops, site, corrections_.RatiosOf(subject_), chosen_);
  }
  return Remember(chosen_);
}

// Ops that would miss their deadlines in this split but could meet them if they went first.
// What is late already is not hurried at the cost of others. True if there are any.
bool AutoPolicy::MarkUrgent(const Snapshot& snapshot, Budget budget, const LaunchSplit& split) {
  std::array<float, kMaxReady> end_us;
  std::fill_n(end_us.begin(), scope_.count(), split.all_us);
  float start_us = 0;
  const uint8_t* next = split.order.data();
  for (const Step& step : split.step_span()) {
    for (int i = 0; i < step.count; ++i) {
      const bool known = step.work_list != nullptr;
      end_us[*next++] = start_us + (known ? step.work_list->ends_us[i] : step.predicted_us);
    }
    start_us += step.predicted_us;
  }
  bool any = false;
  for (int i = 0; i < scope_.count(); ++i) {
    const ReadyOp& op = snapshot.ready[scope_.index[i]];
    if (op.deadline == 0) continue;
    const auto alone_us = static_cast<float>(MemoOf(budget).Of(op.work, HashOf(op)).solo_us);
    const float left_us = static_cast<float>(op.deadline - snapshot.now) * 1e-3f;
    scope_.urgent[i] = end_us[i] > left_us && alone_us <= left_us;
    any |= scope_.urgent[i];
  }
  return any;
}

// What was chosen for the signature, if it was chosen with the measured times that there are now.
LaunchSplit* AutoPolicy::Known() {
  LaunchSplit* known = cache_.Find(signature_);
  if (known == nullptr || known->table == table_) return known;
  if (known->times_hash != TimesHash()) {
    corrections_.Forget({.signature = signature_.hash(), .family = signature_.family()});
    return nullptr;
  }
  known->table = table_;
  return known;
}

// Of all measured times that a choice for the signature depends on.
uint64_t AutoPolicy::TimesHash() const {
  uint64_t hash = 0;
  if (tuned_ == nullptr) return hash;
  for (const Work* work : signature_.works()) {
    hash = Chain(hash, tuned_->TimesHash(Problem::Of(*work)));
  }
  return hash;
}

LaunchSplit& AutoPolicy::Remember(const LaunchSplit& split) {
  chosen_anew_ = true;
  corrections_.Chosen(subject_, split.arrangement);
  LaunchSplit& remembered = cache_.Insert(signature_, split);
  remembered.times_hash = TimesHash();
  remembered.table = table_;
  return remembered;
}

void AutoPolicy::Write(const Snapshot& snapshot, const LaunchSplit& split, int sm_budget,
                       PlanWriter& writer, Plan& plan) {
  int steps = 0;
  uint16_t end = plan.op_count;
  for (; steps < split.step_count; ++steps) {
    const Step& step = split.steps[steps];
    if (plan.launch_count + step.launches() > Plan::kMaxLaunches) break;
    for (int i = 0; i < step.launches(); ++i) {
      PlannedLaunch& launch = plan.launches[plan.launch_count++] = step;
      launch.first = static_cast<uint16_t>(end + i);
      launch.lane = scope_.serial_lane;
      launch.sm_budget = sm_budget;
      launch.degree = DegreeOf(step.count);
      if (step.form != Form::kStreams) continue;
      launch.count = 1;
      launch.lane = scope_.lane[i];
    }
    end = static_cast<uint16_t>(end + step.count);
    writer.AddTimes(step.predicted_us, step.serial_us);
  }
  const int planned = end - plan.op_count;
  for (int i = 0; i < planned; ++i) {
    plan.ops[plan.op_count + i] = scope_.index[split.order[i]];
  }
  plan.op_count = end;
  if (steps > 0) {
    const Corrections::Named named = corrections_.Planned(signature_.hash(), split.arrangement);
    plan.tag = named.tag;
    if (named.choose_anew) cache_.Drop(signature_.hash());
    history_.Planned(scope_.priority_class, snapshot.now);
    ++(chosen_anew_ ? stats_.unseen : stats_.known);
    stats_.tuned += split.tuned;
    stats_.modelled += static_cast<uint64_t>(planned - std::min<int>(planned, split.tuned));
  }
  writer.Finish(steps > 0 ? ReasonOf(plan, snapshot, scope_) : OthersReason(snapshot), true);
}

Reason AutoPolicy::ReasonOf(const Plan& plan, const Snapshot& snapshot, const Scope& scope) {
  const PlannedLaunch& last = plan.launches[plan.launch_count - 1];
  const bool together =
      std::any_of(plan.launches.begin(), plan.launches.begin() + plan.launch_count,
                  [](const PlannedLaunch& launch) { return launch.count > 1; });
  if (together || last.form == Form::kStreams) return Reason::kTogetherFaster;
  if (snapshot.ready.size() == 1) return Reason::kOnlyOneReady;
  const bool lower_class_waits = ClassOf(snapshot.ready.back().priority) > scope.priority_class;
  if (scope.count() == 1 && lower_class_waits) return Reason::kPriorityFirst;
  return Reason::kTogetherNotFaster;
}

}  // namespace

std::unique_ptr<Policy> MakeAuto(const PolicyInputs& inputs) {
  return std::make_unique<AutoPolicy>(inputs);
}

}  // namespace concert::policies
