#include "tests/bench/c3_result.h"

#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// A GEMM of 100 us beside an all-gather of 60 us; 42 MB of memory traffic take 10 us.
OverlapScenario Scenario() {
  return {.name = "x",
          .gemm = {.m = 1024, .n = 1024, .k = 1024},
          .repeat = 5,
          .collective = {.kind = CollectiveKind::kAllGather, .bytes = 10'542'720, .ranks = 2},
          .unsupported = ""};
}

constexpr double kMemory = 4.2e12;

OverlapSamples Measured() {
  return {.together = {{"concert", {110, 110, 110}},
                       {"serial", {180, 180, 180}},
                       {"streams", {150, 150, 150}},
                       {"form_ce", {108, 108, 108}},
                       {"form_p2p8", {}}},
          .gemm_alone = {{"concert", {104}}, {"serial", {100}}},
          .collective_alone = {{"form_ce", {60}}, {"serial", {80}}}};
}

TEST(C3ResultTest, IdealIsTheSlowerOfTheBestAlone) {
  const Rivals rivals = {.baselines = {"serial", "streams"}, .policies = {}};
  const json entry =
      DescribeOverlap(Scenario(), Measured(), rivals, {"form_ce", "form_p2p8"}, kMemory);
  EXPECT_EQ(entry["class"], "all_gather on 2 GPUs");
  EXPECT_EQ(entry["times_us"]["gemm_alone"]["p50"], 100.0);
  EXPECT_EQ(entry["times_us"]["collective_alone"]["p50"], 60.0);
  EXPECT_EQ(entry["alone_us"]["collective"]["serial"], 80.0);
  EXPECT_EQ(entry["ideal_us"], 100.0);
  EXPECT_EQ(entry["bound_us"], 100.0) << "memory takes less";
  EXPECT_DOUBLE_EQ(entry["share_of_ideal"]["concert"], 70.0 / 80);
  EXPECT_DOUBLE_EQ(entry["share_of_ideal"]["streams"], 30.0 / 80);
  EXPECT_FALSE(entry["share_of_ideal"].contains("serial"));
  EXPECT_FALSE(entry["times_us"].contains("form_p2p8")) << "a missing value is left out";
  EXPECT_EQ(entry["oracle"]["form"], "form_ce");
  EXPECT_TRUE(entry["within_3_percent"].get<bool>());
  EXPECT_DOUBLE_EQ(entry["speedup_over"]["best_baseline"], 150.0 / 110);
}

TEST(C3ResultTest, MemoryBoundsWhatCanBeReached) {
  OverlapScenario scenario = Scenario();
  scenario.repeat = 100;  // 629 MB: 152.3 us with the all-gather
  const json entry =
      DescribeOverlap(scenario, Measured(), {.baselines = {"serial"}, .policies = {}}, {}, kMemory);
  EXPECT_EQ(entry["ideal_us"], 100.0);
  EXPECT_NEAR(entry["bound_us"].get<double>(), 152.3, 0.1);
  EXPECT_GT(entry["share_of_bound"]["concert"].get<double>(), 2);
  EXPECT_FALSE(entry.contains("within_3_percent")) << "not all forms were measured";
}

TEST(C3ResultTest, NothingToGainHasNoShare) {
  OverlapSamples samples = Measured();
  samples.together["serial"] = {90};
  const json entry =
      DescribeOverlap(Scenario(), samples, {.baselines = {"serial"}, .policies = {}}, {}, kMemory);
  EXPECT_TRUE(entry["share_of_ideal"].empty());
}

TEST(C3ResultTest, PlansPredictTheLongerHalf) {
  const std::vector<LoggedPlan> plans = {
      {.text = "gemms", .ops = 4, .predicted_us = 90, .kind = "gemm", .gpu = 0},
      {.text = "elsewhere", .ops = 4, .predicted_us = 900, .kind = "gemm", .gpu = 1},
      {.text = "gather", .ops = 1, .predicted_us = 60, .kind = "all_gather", .gpu = 0}};
  const json description = DescribeOverlapPlans(plans, /*repeat=*/5, /*actual_us=*/100);
  EXPECT_EQ(description["plan"], "gemms");
  EXPECT_EQ(description["collective_plan"], "gather");
  EXPECT_DOUBLE_EQ(description["predicted_us"], 112.5);
  EXPECT_DOUBLE_EQ(description["prediction_error"], 0.125);
  EXPECT_FALSE(DescribeOverlapPlans({plans[0]}, 5, 100).contains("predicted_us"));
}

TEST(C3ResultTest, SummaryHasMeansAndWhoIsSlowerThanSerial) {
  const Rivals rivals = {.baselines = {"serial", "streams"}, .policies = {}};
  OverlapSamples slow = Measured();
  slow.together["concert"] = {190};
  OverlapScenario second = Scenario();
  second.name = "y";
  json entries = json::array({DescribeOverlap(Scenario(), Measured(), rivals, {"form_ce"}, kMemory),
                              DescribeOverlap(second, slow, rivals, {"form_ce"}, kMemory)});
  entries[0]["prediction_error"] = 0.1;
  const json summary = OverlapSummary(entries, rivals, 0.02);
  EXPECT_DOUBLE_EQ(summary["share_of_ideal"]["concert"]["mean"], (70.0 - 10) / 80 / 2);
  EXPECT_DOUBLE_EQ(summary["share_of_ideal"]["streams"]["by_class"]["all_gather on 2 GPUs"],
                   30.0 / 80);
  EXPECT_EQ(summary["slower_than_serial"], json({"y"}));
  EXPECT_EQ(summary["oracle"]["within_3_percent"], 1);
  EXPECT_DOUBLE_EQ(summary["prediction_error"], 0.1);
}

}  // namespace
}  // namespace concert::bench
