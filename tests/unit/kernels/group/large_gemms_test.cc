// The cost models against what large GEMMs, of sizes that are no multiples of tiles, took back to
// back (policies/training/data/h200_large.jsonl, written by tests/gpu/cuda_large_measure.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "kernels/group/plan/cost.h"
#include "kernels/group/plan/packing.h"
#include "policies/cost/cost_model.h"
#include "tests/unit/policies/works.h"

namespace concert::kernels::large_gemms {
namespace {

using policies::CoRunSet;
using policies::CostOf;
using policies::DeviceModel;
using policies::Dtype;
using policies::Gemm;
using policies::GroupGoal;
using policies::Problem;
using policies::SoloUs;
using policies::Work;

constexpr int kSms = 132;
// What the signal behind a library kernel takes (launch_times.h), and what measured runs have.
constexpr double kSignalUs = 3, kStreamsSignalUs = 1;

struct Group {
  std::vector<GroupTile> tiles;  // by problem
  double us = 0;
};

struct Row {
  std::vector<Problem> problems;
  double single_us = 0, streams_us = 0;
  std::vector<Group> groups;  // the last: as planned for throughput, with the tiles of then
};

std::vector<Row> ReadRows() {
  std::vector<Row> rows;
  std::ifstream file(CONCERT_LARGE_GEMMS);
  std::string line;
  std::getline(file, line);  // the columns' names
  while (std::getline(file, line)) {
    const nlohmann::json json = nlohmann::json::parse(line);
    Row row{.single_us = json[2], .streams_us = json[4]};
    const Dtype dtype = json[0] == "fp8" ? Dtype::kFp8E4m3 : Dtype::kBf16;
    for (const auto& gemm : json[1]) {
      row.problems.push_back(
          {.m = gemm[0], .n = gemm[1], .k = gemm[2], .batch = 1, .dtype = dtype});
    }
    for (const auto& one : json[6]) {
      row.groups.push_back({std::vector<GroupTile>(row.problems.size(), {one[0], one[1]}), one[2]});
    }
    for (const auto& planned : json[5]) {
      Group group{.us = planned[1]};
      for (const auto& tile : planned[0]) group.tiles.push_back({tile[0], tile[1]});
      row.groups.push_back(group);
    }
    rows.push_back(row);
  }
  return rows;
}

int IndexOf(GroupTile tile) {
  return static_cast<int>(std::find(std::begin(kGroupTiles), std::end(kGroupTiles), tile) -
                          std::begin(kGroupTiles));
}

// Behind others, with these tiles.
double GroupUs(const Row& row, const Group& group) {
  const GroupCosts costs;
  BlockPacking packing(costs.tile_change_us());
  packing.Reset({.count = kSms});
  double work_us = 0, bytes = 0;
  for (size_t i = 0; i < row.problems.size(); ++i) {
    const Problem& problem = row.problems[i];
    const GroupTile tile = group.tiles[i];
    const uint32_t tiles = ((problem.n + tile.w_rows - 1) / tile.w_rows) *
                           ((problem.m + tile.a_rows - 1) / tile.a_rows);
    const double item_us =
        costs.ItemUs(IndexOf(tile), RowsOf(problem), KBlocks(problem), /*split=*/false);
    packing.Add(tiles, item_us, IndexOf(tile));
    work_us += tiles * item_us;
    bytes += HbmBytes(problem);
  }
  return GroupCosts::Us(
      costs.Score({.busiest_us = packing.busiest_us(), .mean_us = work_us / kSms, .bytes = bytes},
                  GroupGoal::kThroughput));
}

Work WorkOf(const Problem& problem) {
  Work work = Gemm(problem.m, problem.n, problem.k);
  work.dtype = problem.dtype;
  work.hbm_bytes = static_cast<uint64_t>(HbmBytes(problem));
  return work;
}

double SingleUs(const Row& row) {
  double sum_us = 0;
  for (const Problem& problem : row.problems) {
    sum_us += SoloUs(DeviceModel(), WorkOf(problem)) + kSignalUs;
  }
  return sum_us;
}

double StreamsUs(const Row& row) {
  const DeviceModel device;
  CoRunSet set(device);
  for (const Problem& problem : row.problems) set.Add(CostOf(device, WorkOf(problem)));
  return set.CoRunUs() + kStreamsSignalUs;
}

struct Errors {
  std::vector<double> of;

  void Add(double predicted_us, double actual_us) {
    of.push_back(std::abs(std::log(predicted_us / actual_us)));
  }
  double Quantile(double share) {
    std::sort(of.begin(), of.end());
    return of[static_cast<size_t>(share * static_cast<double>(of.size() - 1))];
  }
};

TEST(LargeGemmsTest, EveryFormIsPredictedWithinAFewPercent) {
  Errors single, streams, group;
  for (const Row& row : ReadRows()) {
    single.Add(SingleUs(row), row.single_us);
    if (row.streams_us > 0) streams.Add(StreamsUs(row), row.streams_us);
    for (const Group& one : row.groups) group.Add(GroupUs(row, one), one.us);
  }
  ASSERT_GT(group.of.size(), 200u);
  for (auto& [name, errors] : {std::pair<const char*, Errors&>("single", single),
                               {"streams", streams},
                               {"group", group}}) {
    std::printf("[ MEASURED ] %s: off by %.0f %% (median), %.0f %% (of nine in ten)\n", name,
                100 * errors.Quantile(0.5), 100 * errors.Quantile(0.9));
  }
  EXPECT_LT(single.Quantile(0.5), 0.1);
  EXPECT_LT(single.Quantile(0.9), 0.22);
  EXPECT_LT(streams.Quantile(0.5), 0.08);
  EXPECT_LT(streams.Quantile(0.9), 0.18);
  EXPECT_LT(group.Quantile(0.5), 0.08);
  EXPECT_LT(group.Quantile(0.9), 0.18);
}

TEST(LargeGemmsTest, TheFormThatIsPredictedFastestIsNearlyTheFastest) {
  double sum = 0;
  int sets = 0, near = 0;
  for (const Row& row : ReadRows()) {
    if (row.streams_us == 0) continue;
    const std::array<double, 3> predicted = {SingleUs(row), StreamsUs(row),
                                             GroupUs(row, row.groups.back())};
    const std::array<double, 3> actual = {row.single_us, row.streams_us, row.groups.back().us};
    const auto chosen = std::min_element(predicted.begin(), predicted.end()) - predicted.begin();
    const double loss = actual[chosen] / *std::min_element(actual.begin(), actual.end());
    sum += std::log(loss);
    near += loss < 1.03;
    ++sets;
  }
  const double mean_loss = std::exp(sum / sets) - 1;
  std::printf(
      "[ MEASURED ] %d of %d sets within 3 %% of the fastest form, %.1f %% slower on average\n",
      near, sets, 100 * mean_loss);
  EXPECT_LT(mean_loss, 0.03);
  EXPECT_GE(near, 0.8 * sets);
}

// Rows of 13840 bytes begin at odd multiples of 16: that alone makes a block load for twice as
// long.
TEST(LargeGemmsTest, RowsThatBeginWithinASectorAreLoadedByPairs) {
  const GroupCosts costs;
  const int widest = IndexOf({128, 256});
  EXPECT_GT(costs.ItemUs(widest, GroupRows::k16, 100, /*split=*/false),
            1.4 * costs.ItemUs(widest, GroupRows::k128, 100, /*split=*/false));
  GroupCompiler compiler{DeviceModel()};
  const auto plan = [&](uint32_t k) {
    const Problem problem = {.m = 7982, .n = 3544, .k = k};
    return compiler.Compile({&problem, 1}, 0, GroupGoal::kThroughput);
  };
  EXPECT_EQ(plan(6920)->kind, GroupBlocks::kPairs);
  EXPECT_LT(plan(6920)->predicted_us, 1.1f * plan(6912)->predicted_us);
  EXPECT_EQ(RowsOf({.k = 6919}), RowsOf({.k = 6912})) << "rows of its copy";
}

}  // namespace
}  // namespace concert::kernels::large_gemms
