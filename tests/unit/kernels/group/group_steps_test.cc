// Plans for chains against what steps of chains took on a GPU in every tile and split
// (policies/training/data/h200_group_steps.csv, written by tests/gpu/cuda_group_measure.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/group/plan/compiler.h"

namespace concert::kernels {
namespace {

using policies::DeviceModel;
using policies::GroupGoal;
using policies::Problem;

using Step = std::array<uint32_t, 4>;  // count, m, n, k

struct Row {
  GroupTile tile;
  int splits = 1, blocks = 1;
  double step_us = 0;
};

std::map<Step, std::vector<Row>> ReadRows() {
  std::map<Step, std::vector<Row>> rows;
  std::ifstream file(CONCERT_GROUP_STEPS);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "count,m,n,k,tile_w_rows,tile_a_rows,splits,blocks,step_us");
  while (std::getline(file, line)) {
    Step step;
    Row row;
    const int read = std::sscanf(line.c_str(), "%u,%u,%u,%u,%hu,%hu,%d,%d,%lf", &step[0], &step[1],
                                 &step[2], &step[3], &row.tile.w_rows, &row.tile.a_rows,
                                 &row.splits, &row.blocks, &row.step_us);
    EXPECT_EQ(read, 9) << line;
    rows[step].push_back(row);
  }
  return rows;
}

// What was measured of the work list's tile and splits, on about as many blocks. Null: nothing.
const Row* MeasuredAs(const GroupWorkList& work_list, const std::vector<Row>& rows) {
  const Row* found = nullptr;
  const auto off = [&](const Row& row) { return std::abs(row.blocks - work_list.blocks); };
  for (const Row& row : rows) {
    if (!(row.tile == work_list.tiles[0]) || row.splits != work_list.max_splits) continue;
    if (found == nullptr || off(row) < off(*found)) found = &row;
  }
  return found;
}

struct Quality {
  double mean_loss = 0, worst_loss = 0;  // over the fastest that was measured; geometric mean
  double error = 0;                      // of predicted_us, median
};

Quality QualityOf(GroupGoal goal) {
  GroupCompiler compiler{DeviceModel()};
  double sum = 0, worst = 0;
  std::vector<double> errors;
  for (const auto& [step, rows] : ReadRows()) {
    const auto [count, m, n, k] = step;
    const std::vector<Problem> problems(count, Problem{.m = m, .n = n, .k = k});
    compiler.Reclaim();
    const GroupWorkList* work_list = compiler.Compile(problems, 0, goal);
    const Row* chosen = MeasuredAs(*work_list, rows);
    if (chosen == nullptr) continue;
    const auto fastest = std::min_element(
        rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.step_us < b.step_us; });
    const double loss = std::log(chosen->step_us / fastest->step_us);
    sum += loss;
    worst = std::max(worst, loss);
    errors.push_back(std::abs(work_list->predicted_us / chosen->step_us - 1));
  }
  EXPECT_GT(errors.size(), 40u);
  std::sort(errors.begin(), errors.end());
  return {.mean_loss = std::exp(sum / static_cast<double>(errors.size())) - 1,
          .worst_loss = std::exp(worst) - 1,
          .error = errors[errors.size() / 2]};
}

TEST(GroupStepsTest, ChainsArePlannedCloseToTheFastestThatWasMeasured) {
  const Quality chain = QualityOf(GroupGoal::kChain), latency = QualityOf(GroupGoal::kLatency);
  for (const auto& [name, quality] : {std::pair("chain", chain), std::pair("latency", latency)}) {
    std::printf(
        "[ MEASURED ] planned for %s: %.1f %% slower than the fastest, %.0f %% at worst; "
        "predicted within %.0f %%\n",
        name, 100 * quality.mean_loss, 100 * quality.worst_loss, 100 * quality.error);
  }
  EXPECT_LT(chain.mean_loss, 0.03);
  EXPECT_LT(chain.worst_loss, 0.2);
  EXPECT_LT(chain.error, 0.08);
  EXPECT_LT(2 * chain.mean_loss, latency.mean_loss) << "a goal of its own is not worth it";
}

}  // namespace
}  // namespace concert::kernels
