#include "policies/auto/contest.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <deque>
#include <random>
#include <vector>

#include "policies/cost/cost_model.h"

namespace concert::policies {
namespace {

constexpr uint64_t kSeed = 7;

// Takes 50 us at the roofline.
Work WeightsOf(uint32_t n) {
  return {.m = 64,
          .n = n,
          .k = 4096,
          .flops = static_cast<uint64_t>(50e-6 * DeviceModel{}.tensor_flops)};
}

// A GPU that is never idle, two plans deep, on which each way takes its own time for the same work,
// give or take 3 %.
class Gpu {
 public:
  // Over the roofline.
  using Costs = std::array<double, kWayCount>;

  explicit Gpu(const Costs& costs) : costs_(costs) { RecordProperty(); }

  void set_costs(const Costs& costs) { costs_ = costs; }
  void set_apart(bool apart) { apart_ = apart; }
  // The client of each plan thinks for so long before it hands the plan over.
  void set_think_us(double think_us) { think_us_ = think_us; }
  // The next plan takes so much longer, whatever its way.
  void Hiccup(double us) { hiccup_us_ = us; }

  // Plans `count` times. Returns in which way how often.
  std::array<int, kWayCount> Run(int count, const std::vector<Work>& works) {
    std::array<int, kWayCount> taken{};
    for (int i = 0; i < count; ++i) ++taken[static_cast<int>(PlanOne(works[i % works.size()]))];
    return taken;
  }

  const Contest& contest() const { return contest_; }

 private:
  struct Running {
    double launched_us = 0, end_us = 0;
    Work work;
  };

  static void RecordProperty() { ::testing::Test::RecordProperty("seed", std::to_string(kSeed)); }

  Way PlanOne(const Work& work) {
    if (running_.size() == 2) {
      now_us_ = running_.front().end_us;
      running_.pop_front();
    }
    double idle_us = 0;
    if (think_us_ > 0) {
      if (!running_.empty()) now_us_ = running_.back().end_us;
      running_.clear();
      idle_us = think_us_;
      now_us_ += think_us_;
    }
    std::vector<RunningOp> listed;
    for (const Running& running : running_) {
      listed.push_back({.session = 1,
                        .lane = 0,
                        .launched_at = NsOf(running.launched_us),
                        .expected_end = NsOf(running.end_us),
                        .work = running.work});
    }
    Snapshot snapshot;
    snapshot.now = NsOf(now_us_);
    snapshot.idle_ns = NsOf(idle_us);
    snapshot.running = listed;
    const Way way = contest_.Next(snapshot, apart_);
    Effort effort;
    const double roofline_us = RooflineUs(DeviceModel{}, work);
    effort.Add(work, roofline_us);
    contest_.Planned(snapshot, effort);
    const double start_us = running_.empty() ? now_us_ : running_.back().end_us;
    const double scatter = std::normal_distribution(1.0, 0.03)(random_);
    const double run_us = roofline_us * costs_[static_cast<int>(way)] * scatter + hiccup_us_;
    hiccup_us_ = 0;
    running_.push_back({.launched_us = now_us_, .end_us = start_us + run_us, .work = work});
    return way;
  }

  static Time NsOf(double us) { return static_cast<Time>(us * 1e3); }

  Costs costs_;
  Contest contest_{DeviceModel{}};
  std::mt19937_64 random_{kSeed};
  std::deque<Running> running_;
  double now_us_ = 1e6, think_us_ = 0, hiccup_us_ = 0;
  bool apart_ = false;
};

double ShareOf(const std::array<int, kWayCount>& taken, Way way) {
  double all = 0;
  for (const int count : taken) all += count;
  return taken[static_cast<int>(way)] / all;
}

constexpr int kPredicted = static_cast<int>(Way::kPredicted);
constexpr Gpu::Costs kStreamsFastest = {1.5, 1.6, 1.3, 1.8};

TEST(ContestTest, WhatIsPredictedIsTriedFirst) {
  Gpu gpu(kStreamsFastest);
  EXPECT_EQ(gpu.Run(8, {WeightsOf(1)})[kPredicted], 8);
}

TEST(ContestTest, TheWayThatTakesLeastTimeIsTaken) {
  for (int fastest = 0; fastest < kWayCount; ++fastest) {
    Gpu::Costs costs;
    costs.fill(1.5);
    costs[fastest] = 1.35;
    Gpu gpu(costs);
    gpu.Run(300, {WeightsOf(1)});
    EXPECT_GT(ShareOf(gpu.Run(2000, {WeightsOf(1)}), static_cast<Way>(fastest)), 0.9) << fastest;
    EXPECT_NEAR(gpu.contest().ScoreOf(static_cast<Way>(fastest)), 1.35, 0.05);
  }
}

TEST(ContestTest, AWayThatIsMuchSlowerCostsLittle) {
  Gpu gpu({1.2, 10, 10, 10});
  const std::array<int, kWayCount> taken = gpu.Run(20000, {WeightsOf(1)});
  EXPECT_GT(ShareOf(taken, Way::kPredicted), 0.99);
  for (int way = 1; way < kWayCount; ++way) EXPECT_GT(taken[way], 0);
}

TEST(ContestTest, AWayThatBecomesTheFastestIsFound) {
  Gpu gpu({1.2, 1.4, 1.5, 1.6});
  gpu.Run(4000, {WeightsOf(1)});
  gpu.set_costs({1.6, 1.4, 1.2, 1.6});
  gpu.Run(400, {WeightsOf(1)});
  EXPECT_GT(ShareOf(gpu.Run(2000, {WeightsOf(1)}), Way::kStreams), 0.9);
}

TEST(ContestTest, OtherWeightsHaveAContestOfTheirOwn) {
  const std::vector<Work> one = {WeightsOf(1024), WeightsOf(2048)};
  const std::vector<Work> other = {WeightsOf(1536), WeightsOf(3072)};
  const Gpu::Costs groups_fastest = {1.5, 1.2, 1.5, 1.5};
  Gpu gpu(kStreamsFastest);
  gpu.Run(1000, one);
  gpu.set_costs(groups_fastest);
  gpu.Run(1000, other);
  for (int phase = 0; phase < 5; ++phase) {
    gpu.set_costs(kStreamsFastest);
    EXPECT_GT(ShareOf(gpu.Run(100, one), Way::kStreams), 0.85) << phase;
    gpu.set_costs(groups_fastest);
    EXPECT_GT(ShareOf(gpu.Run(100, other), Way::kGroups), 0.85) << phase;
  }
}

TEST(ContestTest, OtherRowsAreTheSameWork) {
  Gpu gpu(kStreamsFastest);
  std::vector<Work> works;
  for (uint32_t m = 1; m <= 512; ++m) {
    works.push_back(WeightsOf(4096));
    works.back().m = m;
  }
  gpu.Run(512, works);
  EXPECT_GT(ShareOf(gpu.Run(512, works), Way::kStreams), 0.9);
}

TEST(ContestTest, WhatIsApartIsPlannedAsPredictedAndNotMeasured) {
  Gpu gpu(kStreamsFastest);
  gpu.Run(1000, {WeightsOf(1)});
  const uint64_t windows = gpu.contest().windows();
  gpu.set_apart(true);
  EXPECT_EQ(gpu.Run(200, {WeightsOf(1)})[kPredicted], 200);
  EXPECT_EQ(gpu.contest().windows(), windows);
  gpu.set_apart(false);
  EXPECT_GT(ShareOf(gpu.Run(200, {WeightsOf(1)}), Way::kStreams), 0.9);
}

TEST(ContestTest, AClientThatThinksIsNoWaysFault) {
  Gpu gpu(kStreamsFastest);
  gpu.set_think_us(5000);
  gpu.Run(300, {WeightsOf(1)});
  EXPECT_NEAR(gpu.contest().ScoreOf(Way::kStreams), 1.3, 0.05);
  EXPECT_GT(ShareOf(gpu.Run(300, {WeightsOf(1)}), Way::kStreams), 0.9);
}

TEST(ContestTest, OneHiccupBanishesNoWayForEver) {
  Gpu gpu(kStreamsFastest);
  // Within the first window of streams: after what is predicted and groups.
  while (gpu.contest().windows() < 2) gpu.Run(1, {WeightsOf(1)});
  gpu.Run(10, {WeightsOf(1)});
  gpu.Hiccup(50000);
  gpu.Run(20000, {WeightsOf(1)});
  EXPECT_GT(ShareOf(gpu.Run(1000, {WeightsOf(1)}), Way::kStreams), 0.9);
}

// More kinds of work than there is room for: the oldest makes room.
TEST(ContestTest, IsBounded) {
  Gpu gpu(kStreamsFastest);
  for (uint32_t n = 1; n < 2000; ++n) gpu.Run(20, {WeightsOf(n)});
  gpu.Run(300, {WeightsOf(1)});
  EXPECT_GT(ShareOf(gpu.Run(500, {WeightsOf(1)}), Way::kStreams), 0.9);
}

}  // namespace
}  // namespace concert::policies
