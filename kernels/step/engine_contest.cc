#include "kernels/step/engine_contest.h"

#include <algorithm>
#include <utility>

namespace concert::kernels::cuda {

bool EngineContest::StepWanted(const Run& run) {
  const bool others_before = std::exchange(last_company_, run.company) != run.company;
  if (run.clients == 1) return true;
  Trial& trial = TrialOf(run.company);
  // What was counted before others came or went is of another time.
  if (others_before && trial.phase != Phase::kDecided) BeginPhase(trial.phase, trial);
  if (trial.phase == Phase::kDecided) {
    if (trial.runs_left-- > 0) return trial.step_won;
    BeginPhase(Phase::kStep, trial);
  }
  const Phase phase = trial.phase;
  if (!Count(run, trial)) return phase == Phase::kStep;
  const int64_t ns = std::max<int64_t>(1, run.now_ns - trial.begin_ns - trial.longest_gap_ns);
  const double rate = trial.work / static_cast<double>(ns);
  if (!IsOver(trial, rate)) return phase == Phase::kStep;
  if (phase == Phase::kStep) {
    trial.step_rate = rate;
    trial.step_runs = trial.runs;
    BeginPhase(Phase::kGraph, trial);
    return true;
  }
  trial.step_won = rate < kGraphMargin * trial.step_rate;
  trial.phase = Phase::kDecided;
  trial.runs_left = kRunsBetween * (trial.step_runs + trial.runs);
  return false;
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

void EngineContest::BeginPhase(Phase phase, Trial& trial) {
  trial.phase = phase;
  trial.runs = trial.rounds = 0;
  trial.runs_of_round = 0;
}

bool EngineContest::Count(const Run& run, Trial& trial) {
  ++trial.runs;
  if (trial.rounds < kSettlingRounds) {
    trial.begin_ns = trial.last_ns = run.now_ns;
    trial.longest_gap_ns = 0;
    trial.work = 0;
  } else {
    trial.longest_gap_ns = std::max(trial.longest_gap_ns, run.now_ns - trial.last_ns);
    trial.last_ns = run.now_ns;
    trial.work += run.work;
  }
  // Who has stopped ends no round, and so decides nothing, until nobody counts with it any more.
  if (++trial.runs_of_round <= run.longest_away) return false;
  trial.runs_of_round = 0;
  ++trial.rounds;
  return true;
}

bool EngineContest::IsOver(const Trial& trial, double rate) {
  const bool graph_is_clearly_slower = trial.phase == Phase::kGraph &&
                                       trial.rounds >= kSettlingRounds + kClearRounds &&
                                       kClearMargin * rate < trial.step_rate;
  return graph_is_clearly_slower || trial.rounds == kRounds;
}

}  // namespace concert::kernels::cuda
