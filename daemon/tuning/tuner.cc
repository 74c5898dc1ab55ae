#include "daemon/tuning/tuner.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "daemon/service/log.h"
#include "policies/auto/sm_budgets.h"
#include "policies/seam/policy.h"

namespace concert::daemon {
namespace {

using policies::Degree;
using policies::Form;
using policies::Problem;
using policies::TunedKey;
using policies::Variant;

constexpr Degree kDegreesInOrder[] = {Degree::kEight, Degree::kTwo, Degree::kFour, Degree::kMany};
constexpr int kJudgingSamples = 8;  // of a finalist in a similar or mixed set
constexpr float kDriftShare = 0.05f;
// Alone on all SMs, on part of them, and from each of the lists for a co-run set: all SMs, a half,
// a quarter. With 64 a row took 1 to 2 s (one H200), and the 704 of gemm.json far more than the
// five minutes they may take. The heuristic names the likeliest first.
constexpr size_t kMaxCandidates = 32, kMaxBudgetCandidates = 16, kMaxPerDegreeList = 6;

// Roofline: enough to put long problems before short ones.
double EstimateUs(const Problem& problem, const policies::DeviceModel& device) {
  const double m = problem.m, n = problem.n, k = problem.k, batch = problem.batch;
  const double bytes = policies::DtypeBytes(problem.dtype) * batch * (m * k + n * k + m * n);
  return 1e6 *
             std::max(2 * batch * m * n * k / device.tensor_flops, bytes / device.hbm_bytes_per_s) +
         device.kernel_floor_us;
}

std::string Describe(const TunedKey& key) {
  const Problem& problem = key.problem;
  std::string text = absl::StrCat(problem.m, "x", problem.n, "x", problem.k);
  if (problem.batch > 1) absl::StrAppend(&text, ", batch ", problem.batch);
  absl::StrAppend(&text, " ", DtypeName(problem.dtype));
  if (key.degree == Degree::kSolo) {
    absl::StrAppend(&text, " alone");
  } else {
    absl::StrAppend(&text, " in a set of ", CountOf(key.degree), " (",
                    std::string(policies::FormName(key.form)), ")");
  }
  if (key.sm_budget != 0) absl::StrAppend(&text, " on ", key.sm_budget, " SMs");
  return text;
}

float SpreadUs(const Measurement& measurement) { return measurement.p90_us - measurement.p10_us; }

}  // namespace

absl::Status Tuner::Run(std::span<const TuningItem> items,
                        const std::function<void(const TuningProgress&)>& on_progress) {
  // One item per problem, the most valuable first.
  items_.clear();
  for (const TuningItem& item : items) {
    const auto same = std::find_if(items_.begin(), items_.end(), [&](const TuningItem& other) {
      return other.problem == item.problem;
    });
    if (same != items_.end()) {
      same->count += item.count;
    } else {
      items_.push_back(item);
    }
  }
  const std::vector<Task> tasks = Tasks();
  progress_ = {};
  progress_.total_rows = static_cast<uint32_t>(tasks.size());
  for (const Task& task : tasks) {
    if (Skips(task.key)) {
      ++progress_.skipped_rows;
      continue;
    }
    progress_.current = Describe(task.key);
    on_progress(progress_);
    if (absl::Status status = RunTask(task); !status.ok()) return status;
  }
  progress_.current.clear();
  on_progress(progress_);
  return absl::OkStatus();
}

std::vector<Tuner::Task> Tuner::Tasks() const {
  // The list keeps its order, since neighbours make similar sets; the tasks have theirs.
  std::vector<size_t> order(items_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto value = [&](size_t i) {
    return static_cast<double>(items_[i].count) * EstimateUs(items_[i].problem, options_.device);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return value(a) > value(b); });

  std::vector<Task> tasks;
  const auto add = [&](uint16_t sm_budget, Degree degree, Form form) {
    for (const size_t i : order) {
      tasks.push_back({i, {items_[i].problem, sm_budget, degree, form}});
    }
  };
  add(0, Degree::kSolo, Form::kSingle);
  // A group has one candidate, so that all its rows take as long as ten on streams.
  for (const Degree degree : kDegreesInOrder) {
    if (options_.device.group_kernel) add(0, degree, Form::kGroup);
  }
  for (const Degree degree : kDegreesInOrder) add(0, degree, Form::kStreams);
  const auto [lower, higher] = policies::ClassBudgetsOf(options_.device.sm_count);
  add(static_cast<uint16_t>(lower), Degree::kSolo, Form::kSingle);
  if (higher != lower) add(static_cast<uint16_t>(higher), Degree::kSolo, Form::kSingle);
  return tasks;
}

bool Tuner::Skips(const TunedKey& key) {
  if (options_.force) return false;
  const std::optional<StoredRow> row = store_.Get(environment_, key);
  return row && !row->stale && row->tuned.samples >= kFinalSamples;
}

absl::Status Tuner::RunTask(const Task& task) {
  const std::vector<Variant> candidates = CandidatesFor(task.key);
  absl::StatusOr<std::vector<Finalist>> finalists =
      Halve(candidates.size(), [&](size_t candidate, int samples) {
        return bench_.Measure(EqualSet(task.key, candidates[candidate]), task.key.form,
                              task.key.sm_budget, samples);
      });
  if (absl::IsNotFound(finalists.status())) {
    ++progress_.failed_rows;
    return absl::OkStatus();
  }
  if (!finalists.ok()) return finalists.status();
  if (task.key.form == Form::kStreams && items_.size() > 1 && finalists->size() > 1) {
    if (absl::Status status = JudgeInOtherSets(task, candidates, *finalists); !status.ok())
      return status;
  }
  const auto degree = static_cast<float>(CountOf(task.key.degree));
  const Measurement& best = finalists->front().measurement;
  StoredRow row;
  row.tuned = {.key = task.key,
               .variant = candidates[finalists->front().candidate],
               .median_us = best.median_us / degree,
               .spread_us = SpreadUs(best) / degree,
               .samples = kFinalSamples};
  if (finalists->size() > 1) {
    row.runner_up = candidates[(*finalists)[1].candidate];
    row.runner_up_us = (*finalists)[1].measurement.median_us / degree;
  }
  row.measured_at_s = options_.measured_at_s;
  const absl::StatusOr<Store::PutResult> put = store_.Put(environment_, row);
  if (!put.ok()) return put.status();
  ++(*put == Store::PutResult::kKept ? progress_.kept_rows : progress_.written_rows);
  return absl::OkStatus();
}

std::vector<Variant> Tuner::CandidatesFor(const TunedKey& key) {
  const bool group = key.form == Form::kGroup;
  std::vector<int> budgets = {key.sm_budget};
  if (key.form == Form::kStreams) {
    for (const int divisor : {2, 4}) budgets.push_back(options_.device.sm_count / divisor);
  }
  std::vector<Variant> candidates;
  for (const int budget : budgets) {
    const size_t alone = key.sm_budget == 0 ? kMaxCandidates : kMaxBudgetCandidates;
    const size_t most = key.form == Form::kStreams ? candidates.size() + kMaxPerDegreeList : alone;
    for (const Variant& variant : bench_.Candidates(key.problem, budget)) {
      const bool fits = (variant.source == Variant::Source::kGroup) == group;
      if (fits && candidates.size() < most &&
          std::find(candidates.begin(), candidates.end(), variant) == candidates.end()) {
        candidates.push_back(variant);
      }
    }
  }
  // The compiler of work lists chooses their tiles: one candidate stands for them all.
  if (group && candidates.empty()) {
    candidates.push_back({.source = Variant::Source::kGroup, .dtype = key.problem.dtype});
  }
  return candidates;
}

std::vector<Candidate> Tuner::EqualSet(const TunedKey& key, const Variant& variant) const {
  return std::vector<Candidate>(static_cast<size_t>(CountOf(key.degree)),
                                Candidate{key.problem, variant});
}

std::vector<Candidate> Tuner::SetOf(const Task& task, const Variant& variant,
                                    std::span<const size_t> others) {
  std::vector<Candidate> set = {{task.key.problem, variant}};
  for (const size_t other : others) {
    const Problem& problem = items_[other].problem;
    set.push_back({problem, BestKnown(problem, task.key)});
  }
  return set;
}

// The best variant that the store has for `problem` in such a set, else alone, else its
// default.
Variant Tuner::BestKnown(const Problem& problem, const TunedKey& like) {
  for (const TunedKey& key : {TunedKey{problem, 0, like.degree, like.form},
                              TunedKey{problem, 0, Degree::kSolo, Form::kSingle}}) {
    const std::optional<StoredRow> row = store_.Get(environment_, key);
    if (row && !row->stale) return row->tuned.variant;
  }
  const std::vector<Variant> candidates = bench_.Candidates(problem, 0);
  return candidates.empty() ? Variant{.dtype = problem.dtype} : candidates.front();
}

absl::Status Tuner::JudgeInOtherSets(const Task& task, std::span<const Variant> candidates,
                                     std::vector<Finalist>& finalists) {
  const auto others = static_cast<size_t>(CountOf(task.key.degree)) - 1;
  std::vector<size_t> similar, mixed;
  for (size_t i = 1; i <= others; ++i) similar.push_back((task.item + i) % items_.size());
  for (size_t i = 0; i < others; ++i) mixed.push_back(random_() % items_.size());

  std::vector<std::pair<double, Finalist>> judged;  // logarithm of the product of the three times
  for (const Finalist& finalist : finalists) {
    double score = std::log(finalist.measurement.median_us);
    for (const std::vector<size_t>& set : {similar, mixed}) {
      const absl::StatusOr<Measurement> measurement =
          bench_.Measure(SetOf(task, candidates[finalist.candidate], set), task.key.form,
                         task.key.sm_budget, kJudgingSamples);
      // A member that cannot run is no fault of this candidate: then the equal set decides.
      if (absl::IsInvalidArgument(measurement.status())) return absl::OkStatus();
      if (!measurement.ok()) return measurement.status();
      score += std::log(measurement->median_us);
    }
    judged.emplace_back(score, finalist);
  }
  // The times of one set are compared with each other only, so that their sum of logarithms
  // orders candidates as the geometric mean of times relative to the default does.
  std::stable_sort(judged.begin(), judged.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < judged.size(); ++i) finalists[i] = judged[i].second;
  return absl::OkStatus();
}

absl::Status Tuner::Verify(int count, const std::function<void(const VerifiedRow&)>& on_row) {
  std::vector<StoredRow> rows = store_.Rows(environment_);
  std::erase_if(rows, [](const StoredRow& row) { return row.stale; });
  std::shuffle(rows.begin(), rows.end(), random_);
  rows.resize(std::min(rows.size(), static_cast<size_t>(count)));
  for (const StoredRow& stored : rows) {
    const policies::TunedRow& row = stored.tuned;
    const absl::StatusOr<Measurement> measurement = bench_.Measure(
        EqualSet(row.key, row.variant), row.key.form, row.key.sm_budget, kFinalSamples);
    VerifiedRow verified{.row = row};
    if (measurement.ok()) {
      const auto degree = static_cast<float>(CountOf(row.key.degree));
      verified.median_us = measurement->median_us / degree;
      verified.spread_us = SpreadUs(*measurement) / degree;
      const float difference = std::abs(verified.median_us - row.median_us);
      verified.drifted = difference > std::hypot(verified.spread_us, row.spread_us) &&
                         difference > kDriftShare * row.median_us;
    } else if (absl::IsInvalidArgument(measurement.status())) {
      verified.drifted = true;  // its variant cannot run any more
    } else {
      return measurement.status();
    }
    if (verified.drifted) {
      if (absl::Status status = store_.MarkStale(environment_, row.key); !status.ok())
        Log(LogLevel::kWarning, std::string(status.message()));
    }
    on_row(verified);
  }
  return absl::OkStatus();
}

}  // namespace concert::daemon
