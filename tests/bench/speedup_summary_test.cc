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

// A client whose throughput is half of what it would be under MPS, beside one that gains much more.
json UnequalTenants() {
  return json::parse(R"([
    {"name": "latency-beside-batch", "class": "shared", "clients": 3,
     "client_names": ["small, high", "large, low", "large, low"],
     "times_us": {"concert": {"p50": 17}, "mps": {"p50": 87}},
     "client_throughput_per_s": {"concert": [8000, 480, 500], "mps": [1000, 1000, 1000]},
     "latency_us": {"concert": [{"p99": 300}, {"p99": 1000}, {"p99": 1000}],
                    "mps": [{"p99": 2400}, {"p99": 250}, {"p99": 1000}]},
     "speedup_over": {"mps": 1.24, "best_baseline": 1.24}},
    {"name": "alone", "class": "alone", "clients": 1, "client_names": ["small"],
     "times_us": {"concert": {"p50": 8}, "local_graph": {"p50": 6}},
     "client_throughput_per_s": {"concert": [750], "local_graph": [1000]},
     "latency_us": {"concert": [{"p99": 100}], "local_graph": [{"p99": 99}]},
     "speedup_over": {"local_graph": 0.75, "best_baseline": 0.75}}])");
}

TEST(SpeedupSummaryTest, OfTenantsEveryClientThatLosesIsNamed) {
  const Rivals rivals = {.baselines = {"mps", "local_graph"}, .policies = {}};
  const json summary = TenantsSummary(UnequalTenants(), rivals, 0.02);
  const json& losses = summary["client_losses"];
  ASSERT_EQ(losses.size(), 3u) << losses;
  EXPECT_EQ(losses[0]["client"], "large, low");
  EXPECT_EQ(losses[0]["clients"], 2);
  EXPECT_EQ(losses[0]["over"], "mps");
  EXPECT_EQ(losses[0]["what"], "throughput");
  EXPECT_NEAR(losses[0]["speedup"].get<double>(), std::sqrt(0.48 * 0.5), 1e-9);
  EXPECT_EQ(losses[1]["what"], "p99");
  EXPECT_NEAR(losses[1]["speedup"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(losses[2]["scenario"], "alone");
  EXPECT_EQ(losses[2]["over"], "local_graph");
  EXPECT_EQ(summary["lost_to_best_baseline"], json({"alone"}));
}

TEST(SpeedupSummaryTest, TenantsCountByTheirOwnSpeedupsAndNotByUnequalGemms) {
  const Rivals rivals = {.baselines = {"mps", "local_graph"}, .policies = {}};
  const json summary = TenantsSummary(UnequalTenants(), rivals, 0.02);
  EXPECT_NEAR(summary["speedup_over"]["mps"]["geomean"].get<double>(), 1.24, 1e-9);
  EXPECT_NEAR(summary["by_class"]["alone"]["local_graph"].get<double>(), 0.75, 1e-9);
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
