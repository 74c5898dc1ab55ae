#include "policies/auto/launch_split.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace concert::policies {
namespace {

// Constants of this file: ADR 13, "What the constants rest on", has what was measured.

// What a launch costs the thread that makes it: a cuBLASLt GEMM with its epilogue, and a group
// however many problems it has. Launches shorter than that wait for the host.
constexpr float kLibraryHostUs = 6.5f;
constexpr float kGroupHostUs = 3.3f;
// The thread that launches is shared by all clients: what it does for one keeps others waiting. So
// many launches that are predicted a little faster than one are not worth it.
constexpr float kHostShare = 0.1f;
// A library kernel is followed on its lane by the write of its timeline; the group kernel signals
// from within.
constexpr float kSignalUs = 1.0f;
// What follows waits for that write.
constexpr float kSignalBehindOthersUs = 3.0f;
// A group launch starts beside the end of the one that it follows, a library kernel after it, and
// so does the group launch after that.
constexpr float kDrainUs = 4.0f;
// A group beyond this much work is split: what becomes ready while it runs waits for all of it, and
// by then another launch costs less than 1 %.
constexpr float kMaxGroupUs = 500;
// A plan stops after this much time; the rest is decided later, when more is known. Ten times what
// passes between the end of a plan and the start of the next.
constexpr float kHorizonUs = 200;
// Problems whose time in a group is predicted for one choice, at up to 0.1 us each.
constexpr int kMaxPredicted = 512;
// Candidates that get as far as a work list, which costs as much as all that went before.
constexpr int kMaxCompiled = 2;
// Sizes that differ less are not worth launches of their own.
constexpr float kSizeClassRatio = 1.5f;
constexpr float kNever = std::numeric_limits<float>::infinity();

// As many as the row kernel takes (kernels/rows/row_args.h).
constexpr int kMaxRowOpsPerLaunch = 32;

// The tuner measures a co-run set on an idle GPU. Of shorter times starting is so much that behind
// other launches they say nothing.
constexpr float kMinMeasuredUs = 40;

constexpr uint8_t kShort = 0, kLong = 1, kAlone = 2;  // marks of ops: Grouping

}  // namespace

float LaunchSplit::PredictedUs() const {
  return std::accumulate(steps.begin(), steps.begin() + step_count, 0.0f,
                         [](float sum, const Step& step) { return sum + step.predicted_us; });
}

// The time of a co-run set in `form` if all of `problems` have been measured in one of that size:
// what each took of the set's time, added up. Nothing if that is too short to say anything here.
std::optional<float> LaunchSplitter::TunedUs(std::span<const Problem> problems, Form form) const {
  if (tuned_ == nullptr || tuned_->empty() || site_.sms.late > 0) return std::nullopt;
  float sum_us = 0;
  for (const Problem& problem : problems) {
    const TunedRow* row = tuned_->Find({.problem = problem,
                                        .sm_budget = static_cast<uint16_t>(site_.sms.budget),
                                        .degree = DegreeOf(static_cast<int>(problems.size())),
                                        .form = form});
    if (row == nullptr || !(row->median_us > 0)) return std::nullopt;
    sum_us += row->median_us;
  }
  return sum_us >= kMinMeasuredUs ? std::optional(sum_us) : std::nullopt;
}

LaunchSplitter::LaunchSplitter(const DeviceModel& device, const TunedTable* tuned,
                               WorkListCompiler* compiler)
    : device_(device), tuned_(tuned), compiler_(compiler) {}

void LaunchSplitter::Choose(std::span<const SplitOp> ops, const Site& site, const Ratios& ratios,
                            LaunchSplit& result) {
  site_ = site;
  ratios_ = ratios;
  candidate_count_ = problems_predicted_ = 0;
  ops_ = ops;
  op_count_ = static_cast<int>(ops.size());
  Prepare();
  Try({0, 0});
  if (row_count_ > 1) Try({0, 0});  // those in one launch
  ProposeGroupings();
  ProposeStreams();
  int compiled = 0;
  while (true) {
    Candidate* best = &candidates_[0];
    for (int i = 1; i < candidate_count_ && compiled < kMaxCompiled; ++i) {
      if (candidates_[i].score_us < best->score_us) best = &candidates_[i];
    }
    // The first candidate harms nobody, by construction.
    if (Confirm(*best, result) || best == &candidates_[0]) return;
    best->score_us = kNever;
    ++compiled;
  }
}

// --- What is planned ---

void LaunchSplitter::Prepare() {
  groupable_count_ = row_count_ = 0;
  bounds_.Clear();
  float urgent_us = 0;
  for (int i = 0; i < op_count_; ++i) {
    const SplitOp& op = ops_[i];
    Item& item = items_[i];
    // Equal ops often follow each other.
    const bool repeated = i > 0 && *op.work == *ops_[i - 1].work;
    item = repeated ? items_[i - 1] : ItemOf(op);
    bounds_.Add(item.serial_us, op.same_session);
    item.session = bounds_.last_session();
    item.urgent = op.urgent;
    if (op.urgent) urgent_us += item.serial_us;
    row_count_ += item.carrier == Carrier::kRows;
    if (item.carrier == Carrier::kGroup) by_time_[groupable_count_++] = static_cast<uint16_t>(i);
  }
  bounds_.FindBounds(urgent_us);
  std::sort(by_time_.begin(), by_time_.begin() + groupable_count_, [this](uint16_t a, uint16_t b) {
    return items_[a].serial_us != items_[b].serial_us ? items_[a].serial_us < items_[b].serial_us
                                                      : a < b;
  });
}

LaunchSplitter::Item LaunchSplitter::ItemOf(const SplitOp& op) {
  const float signal_us = site_.goal == GroupGoal::kThroughput ? kSignalBehindOthersUs : kSignalUs;
  const float library_us = static_cast<float>(op.cost.solo_us) + signal_us +
                           (site_.goal == GroupGoal::kChain ? kDrainUs : 0);
  const float single = Ratio(Arrangement::kSingle);
  const float group = Ratio(op_count_ == 1 ? Arrangement::kGroup : Arrangement::kGroups);
  Item item{.alone_us = library_us, .serial_us = library_us * single, .tuned = op.cost.tuned};
  if (compiler_ != nullptr) item.carrier = op.work->carrier;
  // On the groups' lane a launch of rows signals by itself, and starts beside the end of what it
  // follows.
  if (item.carrier == Carrier::kRows) item.alone_us = static_cast<float>(op.cost.solo_us);
  if (item.carrier != Carrier::kGroup) return item;
  const bool budgeted = site_.sms.limited();
  const Problem problem = Problem::Of(*op.work);
  bool tuned = false;
  const float group_us = GroupUs({&problem, 1}, op.work->repack_bytes, tuned);
  if (budgeted || group_us * group <= library_us * single) {
    item.alone_us = group_us;
    item.alone_form = Form::kGroup;
    item.tuned = tuned;
  }
  // Library kernels cannot keep to a budget, so there one launch after the other is the measure.
  if (budgeted) item.serial_us = group_us * group;
  return item;
}

// --- Candidates ---

void LaunchSplitter::ProposeGroupings() {
  const int n = groupable_count_;
  if (n < 2) return;
  Try({0, n});
  // Where sizes jump most, and where half of the work is.
  int gap = 0, half = 0;
  float widest = kSizeClassRatio, total_us = 0;
  const auto time_us = [this](int i) { return items_[by_time_[i]].serial_us; };
  for (int i = 0; i < n; ++i) total_us += time_us(i);
  for (float sum_us = time_us(0); half < n - 1 && 2 * sum_us < total_us;) sum_us += time_us(++half);
  for (int i = 1; i < n; ++i) {
    if (time_us(i) < widest * time_us(i - 1)) continue;
    widest = time_us(i) / time_us(i - 1);
    gap = i;
  }
  if (gap > 0) {
    Try({gap, n});
    Try({gap, gap});
  }
  const bool varied = time_us(n - 1) >= kSizeClassRatio * time_us(0);
  if (varied && half > 0 && half != gap) Try({half, n});
  for (const int alone : {1, 2, 4}) {
    if (alone < n - 1) Try({0, n - alone});
  }
}

void LaunchSplitter::Try(Grouping grouping) {
  if (candidate_count_ == kMaxCandidates) return;
  if (candidate_count_ > 0 && problems_predicted_ + grouping.alone_from > kMaxPredicted) return;
  const bool first = candidate_count_ == 0;
  Candidate& candidate = candidates_[candidate_count_++];
  Build(grouping, /*join_rows=*/!first, candidate);
  Evaluate(candidate);
}

void LaunchSplitter::Build(Grouping grouping, bool join_rows, Candidate& candidate) const {
  candidate.step_count = 0;
  std::array<uint8_t, kMaxReady> marks;
  std::fill_n(marks.begin(), op_count_, kAlone);
  for (int i = 0; i < grouping.alone_from; ++i)
    marks[by_time_[i]] = i < grouping.long_from ? kShort : kLong;
  for (const bool urgent : {true, false}) {
    AddGroups(marks, kShort, urgent, candidate);
    AddGroups(marks, kLong, urgent, candidate);
    AddAlone(marks, urgent, join_rows, candidate);
  }
}

// One group for each dtype, and the next when it has enough work or all it can repack.
void LaunchSplitter::AddGroups(std::span<const uint8_t> marks, uint8_t mark, bool urgent,
                               Candidate& candidate) const {
  std::array<uint8_t, 256> open;  // step by dtype
  open.fill(Candidate::kLater);
  for (int i = 0; i < op_count_; ++i) {
    const Item& item = items_[i];
    if (marks[i] != mark || item.urgent != urgent) continue;
    const Work& work = *ops_[i].work;
    uint8_t& place = open[static_cast<uint8_t>(work.dtype)];
    if (place == Candidate::kLater ||
        candidate.steps[place].serial_us + item.serial_us > kMaxGroupUs ||
        candidate.steps[place].repack_bytes + work.repack_bytes > compiler_->max_repack_bytes()) {
      place = AddOne(i, candidate);
      continue;
    }
    Step& step = candidate.steps[place];
    candidate.step_of[i] = place;
    step.form = Form::kGroup;
    step.serial_us += item.serial_us;
    step.repack_bytes += work.repack_bytes;
    ++step.count;
  }
}

void LaunchSplitter::AddAlone(std::span<const uint8_t> marks, bool urgent, bool join_rows,
                              Candidate& candidate) const {
  uint8_t rows = Candidate::kLater;  // the step that row ops join
  for (int i = 0; i < op_count_; ++i) {
    const Item& item = items_[i];
    if (marks[i] != kAlone || item.urgent != urgent) continue;
    const bool joins = item.carrier == Carrier::kRows && rows != Candidate::kLater &&
                       candidate.steps[rows].count < kMaxRowOpsPerLaunch;
    if (!joins) {
      const uint8_t step = AddOne(i, candidate);
      if (item.carrier == Carrier::kRows && join_rows) rows = step;
      continue;
    }
    Step& step = candidate.steps[rows];
    candidate.step_of[i] = rows;
    step.form = Form::kGroup;
    step.serial_us += item.serial_us;
    ++step.count;
  }
}

// A step of one op, to which others may be added; kLater if there is no room.
uint8_t LaunchSplitter::AddOne(int op, Candidate& candidate) const {
  uint8_t& step = candidate.step_of[op];
  step = Candidate::kLater;
  if (candidate.step_count == LaunchSplit::kMaxSteps) return step;
  const Item& item = items_[op];
  step = candidate.step_count++;
  Step& added = candidate.steps[step] = {};
  added.form = item.alone_form;
  added.count = 1;
  added.predicted_us = item.alone_us;
  added.serial_us = item.serial_us;
  added.repack_bytes = ops_[op].work->repack_bytes;
  added.tuned = item.tuned;
  added.rows = item.carrier == Carrier::kRows;
  return step;
}

// A candidate's steps are corrected by what plans that are arranged like it took: launches in turn
// cost what none of them would cost alone. So a few large GEMMs as launches of their own behind one
// group of the rest are not judged by how groups did, nor the other way round; and where two groups
// in turn take longer than predicted, one group of all need not (ADR 13).
Arrangement LaunchSplitter::ArrangementOf(const Candidate& candidate) {
  const auto steps = std::span(candidate.steps).first(candidate.step_count);
  const auto groups = std::count_if(steps.begin(), steps.end(),
                                    [](const Step& step) { return step.form == Form::kGroup; });
  if (groups == 0) return Arrangement::kSingle;
  if (groups < std::ssize(steps)) return Arrangement::kMixed;
  return groups == 1 ? Arrangement::kGroup : Arrangement::kGroups;
}

// Times of the steps and the candidate's score.
void LaunchSplitter::Evaluate(Candidate& candidate) {
  Scatter(candidate);
  candidate.arrangement = ArrangementOf(candidate);
  const float ratio = Ratio(candidate.arrangement);
  float gpu_us = 0, host_us = 0;
  bool slower = false;
  for (int p = 0; p < candidate.step_count; ++p) {
    Step& step = candidate.steps[p];
    if (step.count > 1) {
      step.predicted_us = step.rows
                              ? RowsUs(candidate, p)
                              : GroupUs(ProblemsOf(candidate, p), step.repack_bytes, step.tuned);
    }
    step.predicted_us *= ratio;
    slower |= step.count > 1 && step.predicted_us > step.serial_us;  // rule 1
    gpu_us += step.predicted_us;
    host_us += step.form == Form::kGroup || step.rows ? kGroupHostUs : kLibraryHostUs * step.count;
  }
  slower |= candidate.step_of[0] == Candidate::kLater;  // the fairest turn is never put off
  candidate.score_us = slower ? kNever : ScoreUs(gpu_us + LaterUs(candidate), host_us);
}

// Of row ops side by side in one launch: they share the bandwidth of the memory.
float LaunchSplitter::RowsUs(const Candidate& candidate, int step) const {
  double longest_us = 0, hbm_us = 0;
  for (int i = 0; i < op_count_; ++i) {
    if (candidate.step_of[i] != step) continue;
    longest_us = std::max(longest_us, ops_[i].cost.solo_us - device_.kernel_floor_us);
    hbm_us += ops_[i].cost.hbm_us;
  }
  return static_cast<float>(device_.kernel_floor_us + std::max(longest_us, hbm_us));
}

// What candidates are compared by: the time of all ops on the GPU or on the host, whichever is
// longer, and some of what others wait for the host. Library kernels alone always take the host the
// same.
float LaunchSplitter::ScoreUs(float gpu_us, float host_us) const {
  return may_group() ? std::max(gpu_us, host_us) + kHostShare * host_us : gpu_us;
}

// The time of the ops that are not in this plan, one after the other.
float LaunchSplitter::LaterUs(const Candidate& candidate) const {
  float sum_us = 0;
  for (int i = 0; i < op_count_; ++i) {
    if (candidate.step_of[i] == Candidate::kLater) sum_us += items_[i].serial_us;
  }
  return sum_us;
}

// The first ops side by side, in the order of turns: at most as many as there are lanes, and no
// more than a group would have, because what becomes ready waits for all of them. Beside groups
// only as many as possible are a candidate; among library kernels it is a matter of how many.
void LaunchSplitter::ProposeStreams() {
  if (site_.sms.limited()) return;
  const int limit = std::min(op_count_, site_.lane_limit);
  CoRunSet set(device_);
  double wave_us = 0;
  Step step;
  step.form = Form::kStreams;
  while (step.count < limit && (step.count < 2 || step.serial_us <= kMaxGroupUs)) {
    const int op = step.count++;
    set.Add(ops_[op].cost);
    step.serial_us += items_[op].serial_us;
    wave_us = std::max(wave_us, ops_[op].cost.wave_us);
    problems_[op] = Problem::Of(*ops_[op].work);
    if (!may_group()) TryStreams(step, set, wave_us);
  }
  if (may_group()) TryStreams(step, set, wave_us);
}

// A candidate of the first step.count ops, `set` on the GPU, if it breaks no rule. One op alone is
// one beside what runs already.
void LaunchSplitter::TryStreams(Step step, const CoRunSet& set, double wave_us) {
  if (candidate_count_ == kMaxCandidates || (step.count < 2 && site_.tails.empty())) return;
  const std::optional<float> measured_us =
      TunedUs({problems_.data(), static_cast<size_t>(step.count)}, Form::kStreams);
  step.tuned = measured_us.has_value();
  // Against groups half of a last wave that is not full is lost, as there, but behind others, since
  // more fills it.
  const bool fills = !may_group() || site_.goal == GroupGoal::kThroughput;
  const auto added_us = static_cast<float>(fills ? 0 : wave_us / 2) + kSignalUs;
  const Arrangement arrangement = step.count > 1 ? Arrangement::kStreams : Arrangement::kSingle;
  const float ratio = Ratio(arrangement);
  step.predicted_us = ratio * measured_us.value_or(static_cast<float>(set.CoRunUs()) + added_us);
  if (step.predicted_us > step.serial_us) return;
  Candidate& candidate = candidates_[candidate_count_];
  candidate.step_count = 1;
  candidate.steps[0] = step;
  candidate.arrangement = arrangement;
  std::fill_n(candidate.step_of.begin(), step.count, uint8_t{0});
  std::fill_n(candidate.step_of.begin() + step.count, op_count_ - step.count, Candidate::kLater);
  if (Harms(candidate)) return;
  // The rest will be planned as well as these.
  const float gain = GainBesideTails(step, set, added_us * ratio);
  const float all_us = (step.serial_us + LaterUs(candidate)) * gain;
  candidate.score_us = ScoreUs(all_us, kLibraryHostUs * static_cast<float>(op_count_));
  ++candidate_count_;
}

// What `set` and the tails that none of its ops follows take side by side, as a share of what they
// take when it goes one by one behind them.
float LaunchSplitter::GainBesideTails(const Step& step, const CoRunSet& set, float added_us) const {
  CoRunSet tails(device_), all = set;
  for (const Tail& tail : site_.tails) {
    if (tail.follower >= 0 && tail.follower < step.count) continue;
    tails.Add(tail.cost);
    all.Add(tail.cost);
  }
  if (tails.LongestUs() == 0) return step.predicted_us / step.serial_us;
  const float ratio = Ratio(Arrangement::kStreams);
  const auto together_us = static_cast<float>(all.CoRunUs()) * ratio + added_us;
  const auto tails_us = static_cast<float>(tails.CoRunUs()) * Ratio(Arrangement::kSingle);
  return together_us / (tails_us + step.serial_us);
}

// What was measured includes the copies that the tuner's operands, whose rows follow each other
// without a gap, need of the same problem.
float LaunchSplitter::GroupUs(std::span<const Problem> problems, uint64_t repack_bytes,
                              bool& tuned) {
  const std::optional<float> measured_us = TunedUs(problems, Form::kGroup);
  tuned = measured_us.has_value();
  if (tuned) return *measured_us;
  problems_predicted_ += static_cast<int>(problems.size());
  const float group_us = compiler_->PredictUs(problems, site_.sms, site_.goal);
  return group_us + compiler_->RepackUs(repack_bytes);
}

// --- The choice ---

// Compiles the work lists of the steps that will be launched and holds the candidate against the
// rules with what they say. False if it breaks one.
bool LaunchSplitter::Confirm(Candidate& candidate, LaunchSplit& result) {
  Scatter(candidate);
  const int steps = StepsToLaunch(candidate);
  for (int p = 0; p < steps; ++p) {
    Step& step = candidate.steps[p];
    if (step.form != Form::kGroup || step.rows) continue;
    if (!ConfirmStep(ProblemsOf(candidate, p), Ratio(candidate.arrangement), step)) return false;
  }
  WriteResult(candidate, steps, result);
  return !Harms(candidate);
}

bool LaunchSplitter::ConfirmStep(std::span<const Problem> problems, float ratio, Step& step) {
  CompileList(problems, site_, step);
  if (step.work_list != nullptr && !step.tuned) {
    step.predicted_us =
        (step.work_list->predicted_us + compiler_->RepackUs(step.repack_bytes)) * ratio;
  }
  const bool budgeted = site_.sms.limited();
  if (step.count > 1) return step.work_list != nullptr && step.predicted_us <= step.serial_us;
  if (step.work_list == nullptr || (!budgeted && step.predicted_us > step.serial_us)) {
    step.form = Form::kSingle;
    step.predicted_us = step.serial_us;
    step.repack_bytes = 0;
    step.tuned = false;
    step.work_list = nullptr;
  } else if (budgeted) {
    step.serial_us = step.predicted_us;
  }
  return true;
}

// Rule 2. A problem of a group with a work list ends when that says, any other op with its step.
bool LaunchSplitter::Harms(const Candidate& candidate) const {
  std::array<float, LaunchSplit::kMaxSteps> start_us;
  std::array<uint16_t, LaunchSplit::kMaxSteps> seen{};
  float end_us = 0;
  for (int p = 0; p < candidate.step_count; ++p) {
    start_us[p] = end_us;
    end_us += candidate.steps[p].predicted_us;
  }
  for (int i = 0; i < op_count_; ++i) {
    const int p = candidate.step_of[i];
    if (p == Candidate::kLater) continue;
    const Step& step = candidate.steps[p];
    const int problem = seen[p]++;
    if (items_[i].urgent) continue;
    float run_us = step.predicted_us;
    if (step.work_list != nullptr) {
      run_us *= step.work_list->ends_us[problem] / step.work_list->predicted_us;
    }
    if (start_us[p] + run_us > bounds_.BoundUs(items_[i].session)) return true;
  }
  return false;
}

// Up to the horizon, and in any case the op whose turn it is. Where SMs are late they are so for
// the first launch: what follows is decided when that is known to have begun.
int LaunchSplitter::StepsToLaunch(const Candidate& candidate) const {
  float sum_us = 0;
  for (int p = 0; p < candidate.step_count; ++p) {
    sum_us += candidate.steps[p].predicted_us;
    const bool enough = sum_us >= kHorizonUs || site_.sms.late > 0;
    if (enough && p >= candidate.step_of[0]) return p + 1;
  }
  return candidate.step_count;
}

void LaunchSplitter::WriteResult(const Candidate& candidate, int steps, LaunchSplit& result) const {
  result.step_count = static_cast<uint8_t>(steps);
  result.form = Form::kSingle;
  result.arrangement = candidate.arrangement;
  result.all_us = LaterUs(candidate);
  result.op_count = 0;
  for (int p = 0; p < candidate.step_count; ++p) {
    const Step& step = candidate.steps[p];
    result.all_us += step.predicted_us;
    if (p >= steps) continue;
    result.steps[p] = step;
    if (step.form != Form::kSingle && result.form != Form::kGroup) result.form = step.form;
    result.op_count = static_cast<uint16_t>(result.op_count + step.count);
  }
  result.tuned = 0;
  std::array<uint16_t, LaunchSplit::kMaxSteps> next = step_begin_;
  for (int i = 0; i < op_count_; ++i) {
    const int p = candidate.step_of[i];
    if (p >= steps) continue;
    result.order[next[p]++] = static_cast<uint8_t>(i);
    result.tuned +=
        candidate.steps[p].form == Form::kSingle ? ops_[i].cost.tuned : candidate.steps[p].tuned;
  }
}

std::span<const Problem> LaunchSplitter::ProblemsOf(const Candidate& candidate, int step) const {
  return {problems_.data() + step_begin_[step], candidate.steps[step].count};
}

// Lays the problems of each step side by side, in the order of their ops.
void LaunchSplitter::Scatter(const Candidate& candidate) {
  std::array<uint16_t, LaunchSplit::kMaxSteps> next;
  uint16_t begin = 0;
  for (int p = 0; p < candidate.step_count; ++p) {
    next[p] = step_begin_[p] = begin;
    begin = static_cast<uint16_t>(begin + candidate.steps[p].count);
  }
  for (int i = 0; i < op_count_; ++i) {
    const uint8_t p = candidate.step_of[i];
    if (p != Candidate::kLater) problems_[next[p]++] = Problem::Of(*ops_[i].work);
  }
}

void LaunchSplitter::CompileList(std::span<const Problem> problems, const Site& site, Step& step) {
  step.work_list = compiler_->Compile(problems, site.sms, site.goal);
  if (step.work_list != nullptr) step.list_version = step.work_list->version;
}

void LaunchSplitter::KeepLists(std::span<const Work* const> works, const Site& site,
                               LaunchSplit& split) {
  const uint8_t* ops = split.order.data();
  for (Step& step : split.step_span()) {
    const bool listed = step.form == Form::kGroup && !step.rows;
    const bool kept = step.work_list != nullptr && step.work_list->version == step.list_version;
    if (listed && !kept) {
      for (int i = 0; i < step.count; ++i) problems_[i] = Problem::Of(*works[ops[i]]);
      CompileList({problems_.data(), step.count}, site, step);
    }
    ops += step.count;
  }
}

}  // namespace concert::policies
