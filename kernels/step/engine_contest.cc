#include "kernels/step/engine_contest.h"

#include <algorithm>

namespace concert::kernels::cuda {

bool EngineContest::StepWanted(uint64_t company, int clients, double work, int64_t now_ns) {
  Trial& trial = TrialOf(company);
  // What was counted before others came or went is of another time.
  if (company != last_company_ && trial.phase != Phase::kDecided) trial.runs = 0;
  last_company_ = company;
  if (trial.phase == Phase::kDecided) {
    const int64_t contest = int64_t{2} * (kSettlingRuns + kCountedRuns) * clients;
    if (trial.runs++ < kRunsBetween * contest) return trial.step_won;
    trial.phase = Phase::kStep;
    trial.runs = 0;
  }
  const Phase phase = trial.phase;
  if (Count(clients, work, now_ns, trial)) {
    const int64_t ns = std::max<int64_t>(1, now_ns - trial.begin_ns - trial.longest_gap_ns);
    const double rate = trial.work / static_cast<double>(ns);
    if (phase == Phase::kStep) {
      trial.step_rate = rate;
      trial.phase = Phase::kGraph;
    } else {
      trial.step_won = rate < kGraphMargin * trial.step_rate;
      trial.phase = Phase::kDecided;
    }
    trial.runs = 0;
  }
  return phase == Phase::kStep;
}

EngineContest::Trial& EngineContest::TrialOf(uint64_t company) {
  Trial* its = std::find_if(trials_.begin(), trials_.end(), [&](const Trial& trial) {
    return trial.asked != 0 && trial.company == company;
  });
  if (its == trials_.end()) {
    its = std::min_element(trials_.begin(), trials_.end(),
                           [](const Trial& a, const Trial& b) { return a.asked < b.asked; });
    *its = {};
    its->company = company;
  }
  its->asked = ++asked_;
  return *its;
}

bool EngineContest::Count(int clients, double work, int64_t now_ns, Trial& trial) {
  ++trial.runs;
  const int64_t settling = int64_t{kSettlingRuns} * clients;
  if (trial.runs <= settling) {
    trial.begin_ns = trial.last_ns = now_ns;
    trial.longest_gap_ns = 0;
    trial.work = 0;
    return false;
  }
  trial.longest_gap_ns = std::max(trial.longest_gap_ns, now_ns - trial.last_ns);
  trial.last_ns = now_ns;
  trial.work += work;
  return trial.runs == settling + int64_t{kCountedRuns} * clients;
}

}  // namespace concert::kernels::cuda
