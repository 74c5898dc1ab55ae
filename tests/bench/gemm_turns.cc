#include "tests/bench/gemm_turns.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/bench/progress.h"

namespace concert::bench {
namespace {

constexpr uint64_t kSeed = 20260101;
constexpr double kTurnUs = 2000;  // long against one batch, short against changes of the clocks
// At the turn's end the pipeline drains.
constexpr int kMinBatches = 20;
constexpr int kMaxBatches = 256;
constexpr int kWarmUpRuns = 3;
constexpr int kSimBatches = 8;  // the simulator computes on the CPU

// Batches one at a time, the daemon and this process in turn. The first of a block wake up
// what slept during the other's block and are not counted.
struct IsolatedBlocks {
  int blocks, unmeasured, measured;
};
constexpr IsolatedBlocks kGpuBlocks = {8, 5, 25};
constexpr IsolatedBlocks kSimBlocks = {1, 1, 4};

// In which of `count` turns results are checked.
bool FirstOrLast(int turn, int count) { return turn == 0 || turn == count - 1; }

// DATA_LOSS when results are wrong.
absl::Status Check(const std::string& name, Contender& contender, const GemmWorkload& workload,
                   double& worst) {
  absl::StatusOr<double> error = contender.WorstError();
  if (!error.ok()) return error.status();
  double tolerance = 0;
  for (const GemmShape& shape : workload.scenario().gemms) {
    tolerance = std::max(tolerance, GemmWorkload::Tolerance(shape.dtype));
  }
  if (!(*error <= tolerance)) {
    return absl::DataLossError(absl::StrCat(name, " computes wrong results: relative error ",
                                            *error, ", at most ", tolerance, " allowed"));
  }
  worst = std::max(worst, *error);
  return absl::OkStatus();
}

// A turn that begins with poisoned outputs and covers all operand sets, so that the check behind it
// is of this contender's results, whoever shares its memory. Microseconds per batch.
absl::StatusOr<double> CheckedTurn(Entrant& entrant, const GemmWorkload& workload, int batches,
                                   double& worst) {
  if (absl::Status poisoned = entrant.contender->PoisonOutputs(); !poisoned.ok()) return poisoned;
  absl::StatusOr<double> batch_us = entrant.contender->Run(std::max(batches, workload.sets()));
  if (!batch_us.ok()) return batch_us;
  absl::Status checked = Check(entrant.name, *entrant.contender, workload, worst);
  if (!checked.ok()) return checked;
  return batch_us;
}

// Says how many batches fill a contender's turn. The first batches find kernels not loaded and
// nothing decided; a turn sized by them is too short.
absl::StatusOr<int> WarmUp(Entrant& entrant, const GemmWorkload& workload, bool is_sim) {
  absl::StatusOr<double> batch_us = entrant.contender->Run(workload.sets());
  if (!batch_us.ok()) return batch_us.status();
  if (is_sim) return kSimBatches;
  int batches = kMinBatches;
  for (int run = 0; run < kWarmUpRuns; ++run) {
    batch_us = entrant.contender->Run(batches);
    if (!batch_us.ok()) return batch_us.status();
    batches = static_cast<int>(std::clamp<double>(kTurnUs / *batch_us, kMinBatches, kMaxBatches));
  }
  return batches;
}

// One block of batches, one at a time. `checked`: the outputs are poisoned and all operand sets
// computed before, and the results checked after.
absl::Status RunIsolatedBlock(IsolatedEntrant& entrant, const IsolatedBlocks& plan, bool checked,
                              Contender& memory, const GemmWorkload& workload, double& worst) {
  const auto run = [&](int batch, bool measured) -> absl::Status {
    if (Interrupted()) return absl::CancelledError("interrupted");
    const absl::StatusOr<double> batch_us = entrant.run(batch);
    if (batch_us.ok() && measured) entrant.samples_us.push_back(*batch_us);
    return batch_us.status();
  };
  absl::Status status = checked ? memory.PoisonOutputs() : absl::OkStatus();
  for (int set = 0; checked && set < workload.sets() && status.ok(); ++set)
    status = run(set, /*measured=*/false);
  for (int i = 0; i < plan.unmeasured + plan.measured && status.ok(); ++i)
    status = run(i, i >= plan.unmeasured);
  if (!status.ok() || !checked) return status;
  return Check(entrant.name, memory, workload, worst);
}

}  // namespace

absl::Status TakeTurns(std::vector<Entrant>& entrants, const GemmWorkload& workload, bool is_sim,
                       int rounds, double& worst) {
  std::vector<int> batches;
  for (Entrant& entrant : entrants) {
    absl::StatusOr<int> count = WarmUp(entrant, workload, is_sim);
    if (!count.ok()) return count.status();
    batches.push_back(*count);
  }
  // In a new order each round: who always follows the same one finds the GPU as hot, and the CPU as
  // asleep, as that one leaves it.
  std::vector<size_t> order(entrants.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(kSeed);
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t who : order) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      Entrant& entrant = entrants[who];
      const absl::StatusOr<double> batch_us =
          FirstOrLast(round, rounds) ? CheckedTurn(entrant, workload, batches[who], worst)
                                     : entrant.contender->Run(batches[who]);
      if (!batch_us.ok()) return batch_us.status();
      entrant.samples_us.push_back(*batch_us);
    }
  }
  return absl::OkStatus();
}

absl::Status TakeTurnsAlone(std::vector<IsolatedEntrant>& entrants, Contender& memory,
                            const GemmWorkload& workload, bool is_sim, double& worst) {
  const IsolatedBlocks& plan = is_sim ? kSimBlocks : kGpuBlocks;
  for (int block = 0; block < plan.blocks; ++block) {
    for (IsolatedEntrant& entrant : entrants) {
      absl::Status ran =
          RunIsolatedBlock(entrant, plan, FirstOrLast(block, plan.blocks), memory, workload, worst);
      if (!ran.ok()) return ran;
    }
  }
  return absl::OkStatus();
}

}  // namespace concert::bench
