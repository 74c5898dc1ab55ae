#include "tests/bench/speedup_summary.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using nlohmann::json;

const Rivals kRivals = {.baselines = {"serial", "streams"}, .policies = {"goldyloc"}};

json Scenarios() {
  return json::parse(R"([
    {"name": "won", "class": "mixed", "bound_us": 6,
     "times_us": {"concert": {"p50": 10}, "serial": {"p50": 40}, "streams": {"p50": 20},
                  "goldyloc": {"p50": 15}, "isolated": {"p50": 5}, "isolated_local": {"p50": 20},
                  "isolated_graph": {"p50": 6},
                  "forced_streams": {"p50": 1}}},
    {"name": "even", "class": "equal", "bound_us": 8,
     "times_us": {"concert": {"p50": 10.1}, "serial": {"p50": 10}, "streams": {"p50": 20}}},
    {"name": "lost", "class": "equal", "bound_us": 3,
     "times_us": {"concert": {"p50": 10}, "serial": {"p50": 10}, "streams": {"p50": 5}}}])");
}

TEST(SpeedupSummaryTest, TheBestBaselineIsNoPolicyAndNoForcedForm) {
  const json over = SpeedupOver(Scenarios()[0]["times_us"], kRivals);
  EXPECT_EQ(over,
            (json{{"serial", 4.0}, {"streams", 2.0}, {"best_baseline", 2.0}, {"goldyloc", 1.5}}));
}

TEST(SpeedupSummaryTest, WithoutABaselineThereIsNoBestOne) {
  const json times = {{"concert", {{"p50", 10.0}}}, {"goldyloc", {{"p50", 20.0}}}};
  EXPECT_EQ(SpeedupOver(times, kRivals), (json{{"goldyloc", 2.0}}));
  EXPECT_EQ(SpeedupOver({{"serial", {{"p50", 20.0}}}}, kRivals), json::object());
}

TEST(SpeedupSummaryTest, NamesTheScenariosThatLostToTheBestBaseline) {
  const json summary = SpeedupSummary(Scenarios(), kRivals, 0.02);
  EXPECT_EQ(summary["lost_to_best_baseline"], json({"lost"}));
  EXPECT_NEAR(summary["speedup_over"]["serial"]["geomean"].get<double>(),
              std::cbrt(4 * (10 / 10.1) * 1), 1e-9);
  EXPECT_NEAR(summary["speedup_over"]["streams"]["worst"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(summary["speedup_over"]["best_baseline"]["worst_scenario"], "lost");
  EXPECT_NEAR(summary["speedup_over"]["best_baseline"]["geomean"].get<double>(),
              std::cbrt(2 * (10 / 10.1) * 0.5), 1e-9);
}

TEST(SpeedupSummaryTest, EveryClassHasItsOwnMeans) {
  const json by_class = SpeedupSummary(Scenarios(), kRivals, 0.02)["by_class"];
  EXPECT_NEAR(by_class["mixed"]["serial"].get<double>(), 4, 1e-9);
  EXPECT_NEAR(by_class["equal"]["streams"].get<double>(), std::sqrt(20 / 10.1 * 0.5), 1e-9);
  EXPECT_FALSE(by_class["equal"].contains("goldyloc"));
}

TEST(SpeedupSummaryTest, OfGemmsItAlsoHasTheShareOfTheRooflineAndIsolatedBatches) {
  const json summary = GemmSummary(Scenarios(), kRivals, 0.02);
  EXPECT_NEAR(summary["roofline_share"].get<double>(), std::cbrt(0.8 * (10 / 10.1) * 0.5), 1e-9);
  EXPECT_NEAR(summary["isolated_speedup"]["geomean"].get<double>(), 4, 1e-9);
  EXPECT_NEAR(summary["isolated_speedup_over_graph"]["geomean"].get<double>(), 1.2, 1e-9);
  EXPECT_FALSE(summary.contains("oracle"));
  EXPECT_FALSE(summary.contains("prediction_error"));
}

TEST(SpeedupSummaryTest, TheOracleCountsScenariosWhoseFormsWereMeasured) {
  json scenarios = Scenarios();
  scenarios[0].update({{"oracle", {{"form", "forced_group"}, {"p50", 8.0}}},
                       {"within_3_percent", false},
                       {"prediction_error", 0.3}});
  scenarios[1].update({{"oracle", {{"form", "concert"}, {"p50", 10.1}}},
                       {"within_3_percent", true},
                       {"prediction_error", 0.1}});
  const json summary = GemmSummary(scenarios, kRivals, 0.02);
  EXPECT_EQ(summary["oracle"]["scenarios"], 2);
  EXPECT_EQ(summary["oracle"]["within_3_percent"], 1);
  EXPECT_NEAR(summary["oracle"]["mean_loss"].get<double>(), 0.125, 1e-9);
  EXPECT_NEAR(summary["prediction_error"].get<double>(), 0.2, 1e-9);
}

}  // namespace
}  // namespace concert::bench
