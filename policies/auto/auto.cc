#include "policies/auto/auto.h"

#include <algorithm>
#include <array>
#include <span>

#include "policies/auto/launch_split.h"
#include "policies/auto/plan_cache.h"
#include "policies/auto/side_by_side.h"
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

// Which SMs a plan may use.
enum class Budget : uint8_t { kAll, kBesideReserve, kReserve, kBesideCollective };
constexpr int kBudgetCount = 4;

// Less work than that is not shared out: what a client takes to come back with more once something
// has ended, 20 to 30 us, and a launch.
constexpr double kLeastShareUs = 40;
// Ready over running work that is shared out. Of a client that keeps four batches of four
// 16x4096x4096 submitted twelve GEMMs went out and then four, 37 us a batch, now eight by
// turns, 32. Always sharing out leaves batches cut in two and ever new signatures: two
// 1356x1064x3064 and two 258x576x576 took 39 us a batch instead of 34 (one H200).
constexpr double kMaxImbalance = 2;

// What a step of a chain gains that starts beside the end of the one before: 16x2048x2048 after
// itself takes 8.8 us instead of 10.8 (one H200). Of the longest steps that predictions of chains
// were fitted to, that is little.
constexpr float kOverlapUs = 2, kMaxStepUs = 60;

// Tags of a signature's ops.
constexpr uint8_t kSameSession = 1, kUrgent = 2, kTail = 128;

// A barrier is over before anybody could make room for it, and has nothing reserved.
bool WantsSms(const Work& collective) { return collective.link_bytes + collective.hbm_bytes > 0; }

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
             ReserveOf(device_.sm_count), std::max(1, device_.sm_count - device_.collective_sms)},
        memos_{CostMemo(device_, sms_[0], tuned_.get()), CostMemo(device_, sms_[1], tuned_.get()),
               CostMemo(device_, sms_[2], tuned_.get()), CostMemo(device_, sms_[3], tuned_.get())},
        compiler_(inputs.MakeCompiler()),
        splitter_(device_, tuned_.get(), compiler_.get()) {}

  void Decide(const Snapshot& snapshot, Plan& plan) override;

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
  struct Turn {
    int priority_class = 0;
    bool grouped = false;   // one of them can be part of a launch that takes part in chains
    bool deadline = false;  // one of them has one
    bool held_long = false;
    std::span<const uint16_t> index;  // into Snapshot::ready
    std::array<bool, kMaxReady> urgent;
    std::array<Lane, kMaxSideBySide> lane;  // if side by side
    GroupGoal goal = GroupGoal::kLatency;
    bool followed = false;  // on an idle lane: by what could start beside the end of one of them

    int count() const { return static_cast<int>(index.size()); }
    bool high() const { return priority_class == kHighClass; }
    int lane_limit() const { return high() ? kHighLaneCount : kMaxSideBySide; }
  };
  // The last op launched on each lane that runs on SMs.
  using LaneTails = std::array<const RunningOp*, kFirstHighLane + kHighLaneCount>;

  static Reason OthersReason(const Snapshot& snapshot);
  static Reason ReasonOf(const Plan& plan, const Snapshot& snapshot, const Turn& turn);
  static uint64_t HashOf(const ReadyOp& op) {
    return op.work_hash != 0 ? op.work_hash : HashWork(op.work);
  }
  // Whether the i-th op of the turn is of the session of the one before it.
  bool SameSession(const Snapshot& snapshot, int i) const {
    return i > 0 &&
           snapshot.ready[turn_.index[i]].session == snapshot.ready[turn_.index[i - 1]].session;
  }
  CostMemo& MemoOf(Budget budget) { return memos_[static_cast<int>(budget)]; }
  int SmsOf(Budget budget) const { return sms_[static_cast<int>(budget)]; }
  GroupSite SiteOf(Budget budget) const { return {SmsOf(budget), turn_.goal}; }

  void AddOthers(const Snapshot& snapshot, LaneBook& lanes, PlanWriter& writer);
  void TakeTurn(const Snapshot& snapshot, const RunningCompute& running);
  void LookAtLane(const Snapshot& snapshot);
  void TakeHalf(const Snapshot& snapshot);
  void AddIfHarmless(const Snapshot& snapshot, LaneBook& lanes, PlanWriter& writer, Plan& plan);

  // Groups.
  bool CollectiveIsNear(const Snapshot& snapshot) const;
  Budget ChooseBudget(const Snapshot& snapshot, const RunningCompute& running);
  void ChooseFirstStep(const Snapshot& snapshot, Budget budget);
  LaunchSplit& ChooseGrouped(const Snapshot& snapshot, Budget budget);
  LaunchSplit& FindOrSplit(const Snapshot& snapshot, Budget budget);
  bool MarkUrgent(const Snapshot& snapshot, Budget budget, const LaunchSplit& split);

  // Library kernels only.
  LaneTails TailsOf(const Snapshot& snapshot) const;
  LaunchSplit& ChooseLibrary(const Snapshot& snapshot, const LaneTails& lane_tails,
                             LaneBook& lanes);
  Lane SerialLane(const LaneTails& tails) const;

  LaunchSplit* Known();
  uint64_t TimesHash() const;
  LaunchSplit& Remember(const LaunchSplit& split);
  void Write(const Snapshot& snapshot, const LaunchSplit& split, Lane serial_lane, int sm_budget,
             PlanWriter& writer, Plan& plan);

  const DeviceModel device_;
  std::shared_ptr<const TunedTable> tuned_;
  uint32_t table_ = 0;                       // counts the tables there have been
  const std::array<int, kBudgetCount> sms_;  // by Budget
  std::array<CostMemo, kBudgetCount> memos_;
  const std::unique_ptr<WorkListCompiler> compiler_;  // null: no group launches
  LaunchSplitter splitter_;
  PlanCache cache_;
  Corrections corrections_;
  ClassHistory history_;
  PolicyStats stats_;

  // Of the decision at hand.
  ReadyCompute compute_;
  bool offers_ = false;  // a collective that will want SMs
  Turn turn_;
  Signature signature_;
  Corrections::Subject subject_;
  std::array<SplitOp, kMaxReady> ops_;
  LaunchSplit chosen_;
  bool chosen_anew_ = false;
  std::array<uint16_t, kMaxReady> kept_;  // Turn::index, if it is not all of a class
};

void AutoPolicy::Decide(const Snapshot& snapshot, Plan& plan) {
  PlanWriter writer(snapshot, MemoOf(Budget::kAll), plan);
  if (snapshot.ready.empty()) return;
  chosen_anew_ = false;
  LaneBook lanes(snapshot);
  AddOthers(snapshot, lanes, writer);
  const RunningCompute running(snapshot.running, snapshot.now);
  history_.See(snapshot.now, compute_, running);
  if (compute_.total == 0 || writer.full()) return writer.Finish(OthersReason(snapshot), true);

  TakeTurn(snapshot, running);
  const bool outranked = running.HigherRuns(turn_.priority_class);
  if (outranked && !turn_.grouped && !turn_.held_long) {
    return AddIfHarmless(snapshot, lanes, writer, plan);
  }
  if (turn_.grouped) {
    LookAtLane(snapshot);
    if (turn_.goal == GroupGoal::kThroughput) TakeHalf(snapshot);
    const Budget budget = ChooseBudget(snapshot, running);
    if (turn_.followed) ChooseFirstStep(snapshot, budget);
    const LaunchSplit& split = ChooseGrouped(snapshot, budget);
    if (split.form == Form::kStreams) {
      for (int i = 0; i < split.op_count; ++i) {
        const ReadyOp& op = snapshot.ready[turn_.index[split.order[i]]];
        turn_.lane[i] = lanes.Take(op, turn_.high(), split.parts[0].predicted_us);
      }
    }
    Write(snapshot, split, SerialLaneOf(turn_.priority_class), SmsOf(budget), writer, plan);
  } else {
    const LaneTails tails = TailsOf(snapshot);
    const LaunchSplit& split = ChooseLibrary(snapshot, tails, lanes);
    Write(snapshot, split, SerialLane(tails), 0, writer, plan);
  }
}

// Collectives go out at once and ahead of GEMMs, behind whose blocks they would wait; copies
// cost others little. Lists what runs on SMs.
void AutoPolicy::AddOthers(const Snapshot& snapshot, LaneBook& lanes, PlanWriter& writer) {
  compute_.Clear();
  offers_ = false;
  int index = 0;
  for (const ReadyOp& op : snapshot.ready) {
    if (op.work.runs_on == RunsOn::kSms) {
      compute_.Add(index, op, op.work.chains() && compiler_ != nullptr);
    } else if (!writer.full()) {
      const bool collective = op.work.runs_on == RunsOn::kLinks;
      offers_ |= collective && WantsSms(op.work);
      const bool high = op.priority == Priority::kHigh;
      writer.Add(index, Form::kStreams,
                 collective ? kHighCollectiveLane
                            : lanes.Take(op, high, writer.CostOfReady(index).solo_us));
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
void AutoPolicy::TakeTurn(const Snapshot& snapshot, const RunningCompute& running) {
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
  turn_.priority_class = planned;
  turn_.held_long = held_ns(planned) > kMaxHeldNs;
  turn_.grouped = its.grouped > 0;
  turn_.deadline = its.deadline;
  turn_.index = compute_.OfClass(planned);
  const bool groups_only =
      turn_.grouped && its.grouped < its.count && !turn_.held_long && running.HigherRuns(planned);
  if (!groups_only) return;
  int kept = 0;
  for (const uint16_t index : turn_.index) {
    if (snapshot.ready[index].work.chains()) kept_[kept++] = index;
  }
  turn_.index = {kept_.data(), static_cast<size_t>(kept)};
}

// What groups are planned for: throughput behind a launch that none of them waits for, since what
// overlaps it is not late by its own imbalance.
void AutoPolicy::LookAtLane(const Snapshot& snapshot) {
  const Lane lane = SerialLaneOf(turn_.priority_class);
  const bool busy = snapshot.lanes[lane].in_flight > 0;
  const auto any = [&](auto is) {
    return std::any_of(turn_.index.begin(), turn_.index.end(),
                       [&](uint16_t index) { return is(snapshot.ready[index]); });
  };
  turn_.goal = GroupGoal::kLatency;
  turn_.followed = false;
  if (busy) {
    const bool chained = any([&](const ReadyOp& op) { return op.after == lane; });
    turn_.goal = chained ? GroupGoal::kChain : GroupGoal::kThroughput;
  } else {
    turn_.followed = any([&](const ReadyOp& op) { return IsFollowed(snapshot, op); });
  }
}

// Where much more of the class's work is ready than runs, half of both: while one half runs those
// come back who wait for the other. All that is ready would be planned as a long launch and then a
// short one by turns, and behind the short one nothing is ready in time.
void AutoPolicy::TakeHalf(const Snapshot& snapshot) {
  double running_us = 0, ready_us = 0;
  for (const RunningOp& op : snapshot.running) {
    if (op.work.runs_on != RunsOn::kSms) continue;
    if (ClassOf(op.priority) == turn_.priority_class) running_us += RooflineUs(device_, op.work);
  }
  std::array<double, kMaxReady> until_us;  // of all up to this one
  for (int i = 0; i < turn_.count(); ++i) {
    until_us[i] = ready_us += RooflineUs(device_, snapshot.ready[turn_.index[i]].work);
  }
  if (ready_us <= kMaxImbalance * running_us) return;
  const double half_us = std::max(kLeastShareUs, (running_us + ready_us) / 2);
  const auto end =
      std::upper_bound(until_us.begin(), until_us.begin() + turn_.count(), half_us * (1 + 1e-9));
  turn_.index = turn_.index.first(std::max<size_t>(1, end - until_us.begin()));
}

// Beside running work of a higher class a library kernel goes out only if both get all they want.
void AutoPolicy::AddIfHarmless(const Snapshot& snapshot, LaneBook& lanes, PlanWriter& writer,
                               Plan& plan) {
  CostMemo& memo = MemoOf(Budget::kAll);
  const Resources in_use = ResourcesInUse(snapshot, memo);
  const ReadyOp& first = snapshot.ready[turn_.index[0]];
  const OpCost cost = memo.Of(first.work, HashOf(first));
  if (!in_use.HaveRoomFor(cost)) {
    return writer.Finish(plan.empty() ? Reason::kHeldBack : OthersReason(snapshot), true);
  }
  const Lane lane = lanes.Take(first, turn_.high(), cost.solo_us);
  writer.Add(turn_.index[0], Form::kStreams, lane, cost);
  history_.Planned(turn_.priority_class, snapshot.now);
  writer.Finish(Reason::kTogetherFaster, true);
}

// --- Groups ---

// Whether a collective that will want SMs goes out now or waits for ranks that are likely to come
// while a launch that starts now would run: its blocks would wait for that launch to end, and with
// them those of the other GPUs.
bool AutoPolicy::CollectiveIsNear(const Snapshot& snapshot) const {
  if (device_.collective_sms == 0) return false;
  return offers_ ||
         std::any_of(snapshot.waiting.begin(), snapshot.waiting.end(),
                     [&](const WaitingCollective& collective) {
                       const bool last = collective.ranks_there + 1 >= collective.work.ranks;
                       return WantsSms(collective.work) &&
                              snapshot.now - collective.since < (last ? kLastRankNs : kNextRankNs);
                     });
}

Budget AutoPolicy::ChooseBudget(const Snapshot& snapshot, const RunningCompute& running) {
  const bool outranked = history_.HigherActive(turn_.priority_class, snapshot.now, kActiveNs);
  Budget whole = outranked ? Budget::kBesideReserve : Budget::kAll;
  if ((snapshot.reserved_sms > 0 || CollectiveIsNear(snapshot)) &&
      (!outranked || SmsOf(Budget::kBesideCollective) < SmsOf(whole))) {
    whole = Budget::kBesideCollective;
  }
  const Time lower_until = running.LowerUntil(turn_.priority_class);
  if (lower_until <= snapshot.now) return whole;
  const float wait_us = static_cast<float>(lower_until - snapshot.now) * 1e-3f;
  const float reserve_us = ChooseGrouped(snapshot, Budget::kReserve).all_us;
  return reserve_us <= wait_us + ChooseGrouped(snapshot, whole).all_us ? Budget::kReserve : whole;
}

// On an idle lane: whether the first step of a chain is planned as the steps behind it are. What is
// best alone may be a library kernel, whose end no step overlaps, or take the SMs on which the next
// would set up; so it must be faster by more than that costs. Long ones stay as they are: they may
// be of pairs of blocks, which take part in no chain.
void AutoPolicy::ChooseFirstStep(const Snapshot& snapshot, Budget budget) {
  const float alone_us = ChooseGrouped(snapshot, budget).all_us;
  if (alone_us > kMaxStepUs) return;
  turn_.goal = GroupGoal::kChain;
  const float step_us = ChooseGrouped(snapshot, budget).all_us;
  if (step_us > alone_us + kOverlapUs) turn_.goal = GroupGoal::kLatency;
}

LaunchSplit& AutoPolicy::ChooseGrouped(const Snapshot& snapshot, Budget budget) {
  std::fill_n(turn_.urgent.begin(), turn_.count(), false);
  LaunchSplit& split = FindOrSplit(snapshot, budget);
  if (!turn_.deadline || !MarkUrgent(snapshot, budget, split)) return split;
  return FindOrSplit(snapshot, budget);
}

LaunchSplit& AutoPolicy::FindOrSplit(const Snapshot& snapshot, Budget budget) {
  signature_.Start(static_cast<uint32_t>(turn_.goal) << 9 | 1u << 8 |
                   static_cast<uint32_t>(budget) << 1 | static_cast<uint32_t>(turn_.high()));
  const ReadyOp* before = nullptr;
  for (int i = 0; i < turn_.count(); ++i) {
    const ReadyOp& op = snapshot.ready[turn_.index[i]];
    const bool same_session = before != nullptr && before->session == op.session;
    signature_.Add(op.work, HashOf(op),
                   (same_session ? kSameSession : 0) | (turn_.urgent[i] ? kUrgent : 0));
    before = &op;
  }
  if (LaunchSplit* known = Known()) {
    if (known->form == Form::kGroup && !compiler_->Valid(known->compiled_at)) {
      splitter_.CompileAnew(signature_.works(), SiteOf(budget), *known);
    }
    return *known;
  }
  for (int i = 0; i < turn_.count(); ++i) {
    const ReadyOp& op = snapshot.ready[turn_.index[i]];
    ops_[i] = {.work = &op.work,
               .cost = MemoOf(budget).Of(op.work, HashOf(op)),
               .same_session = SameSession(snapshot, i),
               .urgent = turn_.urgent[i]};
  }
  const auto choose = [&] {
    splitter_.Choose({ops_.data(), static_cast<size_t>(turn_.count())}, SiteOf(budget),
                     turn_.lane_limit(), corrections_.RatiosOf(subject_), chosen_);
  };
  subject_ = {.signature = signature_.hash(), .family = signature_.family()};
  choose();
  // What the family taught about longer plans would stay for ever, since short ones teach nothing.
  if (chosen_.PredictedUs() < Corrections::kMinUs && corrections_.Knows(subject_)) {
    subject_.family = Corrections::kNoFamily;
    choose();
  }
  return Remember(chosen_);
}

// Ops that would miss their deadlines in this split but could meet them if they went first.
// What is late already is not hurried at the cost of others. True if there are any.
bool AutoPolicy::MarkUrgent(const Snapshot& snapshot, Budget budget, const LaunchSplit& split) {
  std::array<float, kMaxReady> end_us;
  std::fill_n(end_us.begin(), turn_.count(), split.all_us);
  float start_us = 0;
  const uint8_t* next = split.order.data();
  for (const Part& part : split.part_span()) {
    for (int i = 0; i < part.count; ++i) {
      const bool known = part.work_list != nullptr;
      end_us[*next++] = start_us + (known ? part.work_list->ends_us[i] : part.predicted_us);
    }
    start_us += part.predicted_us;
  }
  bool any = false;
  for (int i = 0; i < turn_.count(); ++i) {
    const ReadyOp& op = snapshot.ready[turn_.index[i]];
    if (op.deadline == 0) continue;
    const auto alone_us = static_cast<float>(MemoOf(budget).Of(op.work, HashOf(op)).solo_us);
    const float left_us = static_cast<float>(op.deadline - snapshot.now) * 1e-3f;
    turn_.urgent[i] = end_us[i] > left_us && alone_us <= left_us;
    any |= turn_.urgent[i];
  }
  return any;
}

// --- Library kernels only ---

AutoPolicy::LaneTails AutoPolicy::TailsOf(const Snapshot& snapshot) const {
  LaneTails tails{};
  for (const RunningOp& running : snapshot.running) {
    if (running.work.runs_on != RunsOn::kSms || running.lane >= tails.size()) continue;
    const RunningOp*& tail = tails[running.lane];
    if (tail == nullptr || running.launched_at >= tail->launched_at) tail = &running;
  }
  return tails;
}

LaunchSplit& AutoPolicy::ChooseLibrary(const Snapshot& snapshot, const LaneTails& lane_tails,
                                       LaneBook& lanes) {
  CostMemo& memo = MemoOf(Budget::kAll);
  const auto limit = static_cast<size_t>(turn_.lane_limit());
  if (turn_.index.size() > limit) turn_.index = turn_.index.first(limit);
  signature_.Start(static_cast<uint32_t>(turn_.high()));
  std::array<SideBySideOp, kMaxSideBySide> gemms;
  std::array<int, kLaneCount> follower;
  follower.fill(-1);
  for (int i = 0; i < turn_.count(); ++i) {
    const ReadyOp& op = snapshot.ready[turn_.index[i]];
    const uint64_t hash = HashOf(op);
    gemms[i] = {.cost = memo.Of(op.work, hash), .same_session = SameSession(snapshot, i)};
    signature_.Add(op.work, hash, gemms[i].same_session ? kSameSession : 0);
    turn_.lane[i] = lanes.Take(op, turn_.high(), gemms[i].cost.solo_us);
    follower[turn_.lane[i]] = i;
  }
  std::array<Tail, kFirstHighLane + kHighLaneCount> tails;
  int tail_count = 0;
  for (size_t lane = 0; lane < lane_tails.size(); ++lane) {
    const RunningOp* tail = lane_tails[lane];
    // Work of a lower class is no reason to wait.
    if (tail == nullptr || ClassOf(tail->priority) != turn_.priority_class) continue;
    const uint64_t hash = HashWork(tail->work);
    signature_.Add(tail->work, hash, static_cast<uint8_t>(kTail + 1 + follower[lane]));
    tails[tail_count++] = {.cost = memo.Of(tail->work, hash), .follower = follower[lane]};
  }
  if (LaunchSplit* known = Known()) return *known;
  subject_ = {.signature = signature_.hash(), .family = signature_.family()};
  ChooseSideBySide(device_, {gemms.data(), static_cast<size_t>(turn_.count())},
                   {tails.data(), static_cast<size_t>(tail_count)}, corrections_.RatiosOf(subject_),
                   chosen_);
  return Remember(chosen_);
}

// Behind what ends last of the same class, so that nothing runs beside it.
Lane AutoPolicy::SerialLane(const LaneTails& tails) const {
  const RunningOp* last = nullptr;
  for (const RunningOp* tail : tails) {
    if (tail == nullptr || ClassOf(tail->priority) != turn_.priority_class) continue;
    if (IsHighPriority(tail->lane) != turn_.high()) continue;
    if (last == nullptr || tail->expected_end > last->expected_end) last = tail;
  }
  return last == nullptr ? turn_.lane[0] : last->lane;
}

// --- Both ---

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

void AutoPolicy::Write(const Snapshot& snapshot, const LaunchSplit& split, Lane serial_lane,
                       int sm_budget, PlanWriter& writer, Plan& plan) {
  int parts = 0;
  uint16_t end = plan.op_count;
  for (; parts < split.part_count; ++parts) {
    const Part& part = split.parts[parts];
    const bool streams = part.form == Form::kStreams;
    if (plan.launch_count + (streams ? part.count : 1) > Plan::kMaxLaunches) break;
    for (int i = 0; i < (streams ? part.count : 1); ++i) {
      plan.launches[plan.launch_count++] = {.first = static_cast<uint16_t>(end + i),
                                            .count = streams ? uint16_t{1} : part.count,
                                            .form = part.form,
                                            .lane = streams ? turn_.lane[i] : serial_lane,
                                            .sm_budget = static_cast<uint16_t>(sm_budget),
                                            .degree = DegreeOf(part.count),
                                            .work_list = part.work_list,
                                            .predicted_us = part.predicted_us};
    }
    end = static_cast<uint16_t>(end + part.count);
    writer.AddTimes(part.predicted_us, part.serial_us);
  }
  const int planned = end - plan.op_count;
  for (int i = 0; i < planned; ++i) {
    plan.ops[plan.op_count + i] = turn_.index[split.order[i]];
  }
  plan.op_count = end;
  if (parts > 0) {
    const Corrections::Named named = corrections_.Planned(signature_.hash(), split.arrangement);
    plan.tag = named.tag;
    if (named.choose_anew) cache_.Drop(signature_.hash());
    history_.Planned(turn_.priority_class, snapshot.now);
    ++(chosen_anew_ ? stats_.unseen : stats_.known);
    stats_.tuned += split.tuned;
    stats_.modelled += static_cast<uint64_t>(planned - std::min<int>(planned, split.tuned));
  }
  writer.Finish(parts > 0 ? ReasonOf(plan, snapshot, turn_) : OthersReason(snapshot), true);
}

Reason AutoPolicy::ReasonOf(const Plan& plan, const Snapshot& snapshot, const Turn& turn) {
  const PlannedLaunch& last = plan.launches[plan.launch_count - 1];
  const bool together =
      std::any_of(plan.launches.begin(), plan.launches.begin() + plan.launch_count,
                  [](const PlannedLaunch& launch) { return launch.count > 1; });
  if (together || last.form == Form::kStreams) return Reason::kTogetherFaster;
  if (snapshot.ready.size() == 1) return Reason::kOnlyOneReady;
  const bool lower_class_waits = ClassOf(snapshot.ready.back().priority) > turn.priority_class;
  if (turn.count() == 1 && lower_class_waits) return Reason::kPriorityFirst;
  return Reason::kTogetherNotFaster;
}

}  // namespace

std::unique_ptr<Policy> MakeAuto(const PolicyInputs& inputs) {
  return std::make_unique<AutoPolicy>(inputs);
}

}  // namespace concert::policies
