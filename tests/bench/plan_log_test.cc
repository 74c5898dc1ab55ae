#include "tests/bench/plan_log.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using nlohmann::json;

TEST(PlanLogTest, TheTypicalPlanIsTheNewestOfTheMostFrequentKind) {
  const std::vector<LoggedPlan> plans = {
      {"one", "single", 1, 1, 10, 10},
      {"newer", "group", 4, 1, 20, 25},
      {"older", "group", 4, 1, 30, 30},
  };
  const json description = DescribePlans(plans, 4);
  EXPECT_EQ(description["plan"], "newer");
  const json group = {{"form", "group"}, {"ops", 4}, {"launches", 1}, {"count", 2}};
  const json single = {{"form", "single"}, {"ops", 1}, {"launches", 1}, {"count", 1}};
  EXPECT_EQ(description["plans"], json::array({group, single}));
}

TEST(PlanLogTest, PredictionsArePerBatch) {
  const std::vector<LoggedPlan> plans = {
      {"half a batch", "group", 2, 1, 10, 20, 400},
      {"two batches", "group", 8, 1, 60, 40, 300},
      {"one batch", "group", 4, 1, 25, 25, 200},
      {"not predicted", "group", 4, 1, 0, 1000, 100},
  };
  const json description = DescribePlans(plans, 4);
  EXPECT_DOUBLE_EQ(description["predicted_us"].get<double>(), 25);  // of 20, 30 and 25
  EXPECT_DOUBLE_EQ(description["planned_us"].get<double>(), 25);    // of 40, 20 and 25
  EXPECT_DOUBLE_EQ(description["prediction_error"].get<double>(), 0.5);
}

TEST(PlanLogTest, PlansSeenToEndAtOnceCountAsOne) {
  const std::vector<LoggedPlan> plans = {
      {"behind", "single", 2, 1, 20, 0, 200},
      {"first", "single", 2, 1, 20, 50, 200},
      {"before", "single", 2, 1, 20, 25, 100},
  };
  const json description = DescribePlans(plans, 4);
  EXPECT_DOUBLE_EQ(description["planned_us"].get<double>(), 50);  // of 50 and 50
  EXPECT_DOUBLE_EQ(description["prediction_error"].get<double>(), 0.2);
}

TEST(PlanLogTest, NoPlansSayNothing) { EXPECT_EQ(DescribePlans({}, 4), json::object()); }

}  // namespace
}  // namespace concert::bench
