#include "tests/bench/tenant_series.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// Two laps of two clients, of which the second's rate is `large_per_s`.
TenantSeries SeriesOf(double small_per_s, double large_per_s) {
  TenantSeries series;
  for (const double factor : {1.0, 1.2}) {
    series.AddLap({.us_per_unit = 1e6 / (factor * (small_per_s + large_per_s)),
                   .units_per_s = {factor * small_per_s, factor * large_per_s},
                   .latencies_us = {{factor * 10, factor * 20}, {factor * 100}}});
  }
  return series;
}

json DescribedPair() {
  const TenantGroup pair = {
      .scenario = "pair",
      .clients = {{.name = "small, high", .priority = 1}, {.name = "large, low", .priority = -1}}};
  SeriesByMode series = {{"concert", SeriesOf(80000, 500)}, {"mps", SeriesOf(10000, 1000)}};
  series["time_sliced"].failure = absl::UnavailableError("no memory");
  return DescribeTenants(
      pair, series, {.baselines = {"time_sliced", "mps", "local_graph"}, .policies = {"serial"}});
}

TEST(TenantSeriesTest, UnequalClientsCountByTheirOwnSpeedups) {
  const json entry = DescribedPair();
  EXPECT_NEAR(entry["speedup_over"]["mps"].get<double>(), 2, 1e-9)
      << "8x and 0.5x; by their GEMMs together it would be 7.3x";
  EXPECT_NEAR(entry["speedup_over"]["best_baseline"].get<double>(), 2, 1e-9);
  EXPECT_EQ(entry["speedup_over"].size(), 2u) << "who did not run is no rival";
  EXPECT_EQ(entry["client_names"], json({"small, high", "large, low"}));
  EXPECT_EQ(entry["class"], "shared");
  ASSERT_EQ(entry["unavailable"].size(), 1u);
  EXPECT_EQ(entry["unavailable"][0]["name"], "time_sliced");
}

// Clients of MPS have not been alone: they compare with those of the first baseline.
TEST(TenantSeriesTest, WhatIsLeftBesideOthersIsOfEachClient) {
  SeriesByMode series = {{"time_sliced", SeriesOf(10000, 1000)}, {"concert", SeriesOf(80000, 500)}};
  series["mps"] = SeriesOf(5000, 2000);
  for (const char* mode : {"concert", "time_sliced"}) {
    for (const double rate : {110000.0, 2200.0}) series[mode].solo_units_per_s.push_back(rate);
    for (const double latency : {8.0, 100.0})
      series[mode].solo_latencies.emplace_back().AddLap({latency});
  }
  const json entry =
      DescribeTenants({.scenario = "pair", .clients = {{.name = "a"}, {.name = "b"}}}, series,
                      {.baselines = {"time_sliced", "mps"}, .policies = {}});
  EXPECT_EQ(entry["kept_of_alone"]["concert"], json({0.8, 0.25}));
  EXPECT_EQ(entry["kept_of_alone"]["mps"], json({0.05, 1.0}));
  EXPECT_EQ(entry["p99_over_alone"]["concert"], json({2.985, 1.198}));
  EXPECT_EQ(entry["solo_throughput_per_s"]["time_sliced"], json({110000.0, 2200.0}));
  EXPECT_FALSE(entry["solo_throughput_per_s"].contains("mps"));
}

TEST(TenantSeriesTest, LapsShowHowEachFigureScatters) {
  const json entry = DescribedPair();
  const json& rate = entry["client_throughput_laps_per_s"]["concert"][0];
  EXPECT_NEAR(rate["p10"].get<double>(), 81600, 1e-3);
  EXPECT_NEAR(rate["p90"].get<double>(), 94400, 1e-3);
  EXPECT_NEAR(entry["client_throughput_per_s"]["concert"][0].get<double>(), 88000, 1e-3);
  const json& latency = entry["latency_us"]["concert"][1];
  EXPECT_NEAR(latency["p50"].get<double>(), 110, 1e-3);
  EXPECT_NEAR(latency["p50_p10"].get<double>(), 102, 1e-3);
  EXPECT_NEAR(latency["p99_p90"].get<double>(), 118, 1e-3);
}

}  // namespace
}  // namespace concert::bench
