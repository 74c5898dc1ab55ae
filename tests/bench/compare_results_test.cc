#include "tests/bench/compare_results.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/result_file.h"

namespace concert::bench {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

json Published(const std::string& name) {
  const auto result = ReadResult(std::string(CONCERT_RESULTS "/") + name);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : json();
}

json Compared(const json& was, const json& is) {
  const auto comparison = CompareResults(was, is);
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  return comparison.ok() ? *comparison : json();
}

std::string Printed(const json& comparison) {
  std::ostringstream out;
  PrintChanges(comparison, out);
  return out.str();
}

void Scale(json& spread, double factor) {
  for (auto& [quantile, value] : spread.items()) value = value.get<double>() * factor;
}

TEST(CompareResultsTest, EveryPublishedFileIsWhatItIs) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(CONCERT_RESULTS)) {
    if (file.path().extension() != ".json") continue;
    // What micro-benchmarks leave there has no schema.
    if (std::ifstream text(file.path()); !json::parse(text).contains("schema")) continue;
    ++files;
    const json result = Published(file.path().filename());
    const json comparison = Compared(result, result);
    EXPECT_GE(comparison["changes"].size(), result["scenarios"].size()) << file.path();
    for (const json& change : comparison["changes"]) {
      EXPECT_DOUBLE_EQ(change["time"].get<double>(), 1) << change;
      EXPECT_FALSE(change.value("time_changed", false)) << change;
      EXPECT_DOUBLE_EQ(change.value("speedup", 1.0), 1) << change;
    }
    for (const auto& [kind, summary] : comparison["summary"].items())
      EXPECT_DOUBLE_EQ(summary["time"]["geomean"].get<double>(), 1) << kind;
    EXPECT_THAT(Printed(comparison), HasSubstr("geomean 1.000, worst 1.000"));
  }
  EXPECT_GE(files, 3);
}

TEST(CompareResultsTest, OnlyWhatLeavesTheScatterOfBothHasChanged) {
  const json was = Published("gemm-h200.json");
  json is = was;
  const std::string slow = is["scenarios"][0]["name"], noisy = is["scenarios"][1]["name"];
  Scale(is["scenarios"][0]["times_us"]["concert"], 2);
  json& concert = is["scenarios"][1]["times_us"]["concert"];
  concert["p50"] = 1.01 * concert["p50"].get<double>();
  concert["p90"] = 1.5 * concert["p50"].get<double>();

  const json comparison = Compared(was, is);
  const json& together = comparison["summary"]["together"];
  EXPECT_THAT(together["slower"], ElementsAre(slow));
  EXPECT_TRUE(together["faster"].empty());
  EXPECT_NEAR(together["time"]["worst"].get<double>(), 2, 1e-9);
  EXPECT_EQ(together["time"]["worst_scenario"], slow);
  EXPECT_NEAR(together["speedup"]["worst"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(together["speedup"]["worst_scenario"], slow);
  EXPECT_NEAR(comparison["baselines"]["serial"].get<double>(), 1, 1e-9);
  for (const json& change : comparison["changes"]) {
    if (change["kind"] != "together" || change["name"] != noisy) continue;
    EXPECT_NEAR(change["time"].get<double>(), 1.01, 1e-9);
    EXPECT_FALSE(change["time_changed"].get<bool>());
  }
  EXPECT_THAT(Printed(comparison), AllOf(HasSubstr("2.000*"), HasSubstr("0.500*")));
}

TEST(CompareResultsTest, ASlowerMachineShowsInTheBaselinesAndNotInTheSpeedup) {
  const json was = Published("gemm-h200.json");
  json is = was;
  is["header"]["gpu"] = "NVIDIA H100";
  for (json& scenario : is["scenarios"]) {
    for (auto& [form, spread] : scenario["times_us"].items()) Scale(spread, 1.25);
  }
  const json comparison = Compared(was, is);
  EXPECT_THAT(comparison["warnings"], Contains("gpu was \"NVIDIA H200\" and is \"NVIDIA H100\""));
  for (const auto& [form, drift] : comparison["baselines"].items())
    EXPECT_NEAR(drift.get<double>(), 1.25, 1e-9) << form;
  EXPECT_NEAR(comparison["summary"]["together"]["time"]["geomean"].get<double>(), 1.25, 1e-9);
  EXPECT_NEAR(comparison["summary"]["together"]["speedup"]["geomean"].get<double>(), 1, 1e-9);
  EXPECT_THAT(Printed(comparison), HasSubstr("serial 1.250"));
}

TEST(CompareResultsTest, ABaselineThatIsNewDoesNotMakeConcertSlower) {
  const json was = Published("gemm-h200.json");
  json is = was;
  is["header"]["baselines"].push_back("faster_than_all");
  for (json& scenario : is["scenarios"]) {
    scenario["times_us"]["faster_than_all"] = {{"p50", 0.1}};
    scenario["times_us"]["isolated_faster"] = {{"p50", 0.1}};
  }
  const json comparison = Compared(was, is);
  for (const char* kind : {"together", "isolated"}) {
    EXPECT_NEAR(comparison["summary"][kind]["speedup"]["worst"].get<double>(), 1, 1e-9) << kind;
  }
}

TEST(CompareResultsTest, AScenarioCountsWhereNameAndWorkAreTheSame) {
  const json was = Published("gemm-h200.json");
  json is = was;
  const std::string gone = is["scenarios"][0]["name"], other = is["scenarios"][1]["name"];
  is["scenarios"][0]["name"] = "brand-new";
  is["scenarios"][1]["bound_us"] = 2 * is["scenarios"][1]["bound_us"].get<double>();
  const json comparison = Compared(was, is);
  EXPECT_THAT(comparison["only_in_old"], ElementsAre(gone));
  EXPECT_THAT(comparison["only_in_new"], ElementsAre("brand-new"));
  ASSERT_EQ(comparison["not_the_same"].size(), 1u);
  EXPECT_EQ(comparison["not_the_same"][0]["name"], other);
  for (const json& change : comparison["changes"]) EXPECT_NE(change["name"], other);
  EXPECT_THAT(Printed(comparison), AllOf(HasSubstr("brand-new"), HasSubstr("bound_us was")));
}

json TwoTenants(double first_per_s, double second_per_s, int laps) {
  json result = NewResult("tenants");
  result["header"] = {{"device", "cuda"}, {"gpu", "a GPU"},  {"gpus", 1},
                      {"commit", "abc"},  {"date", "today"}, {"policy", "auto"},
                      {"rounds", laps},   {"laps", laps},    {"baselines", {"mps"}}};
  const double us = 1e6 / (first_per_s + second_per_s), low = laps > 1 ? 0.99 * us : us;
  result["scenarios"] = {{{"name", "pair"},
                          {"times_us",
                           {{"concert", {{"p50", us}, {"p10", low}, {"p90", us}}},
                            {"mps", {{"p50", 10.0}, {"p10", 9.9}, {"p90", 10.1}}}}},
                          {"client_throughput_per_s",
                           {{"concert", {first_per_s, second_per_s}}, {"mps", {1e5, 100.0}}}}}};
  return result;
}

TEST(CompareResultsTest, EachClientOfUnequalOnesCountsAlike) {
  // The first does a hundred times as many GEMMs, of a hundredth of the second's size.
  const json comparison = Compared(TwoTenants(1e5, 100, 20), TwoTenants(2e5, 50, 20));
  EXPECT_NEAR(comparison["changes"][0]["time"].get<double>(), 1, 1e-9);
  EXPECT_NEAR(comparison["changes"][0]["new_speedup"].get<double>(), 1, 1e-9);
}

TEST(CompareResultsTest, OneLapHasNoScatterThatAnythingCouldLeave) {
  const json comparison = Compared(TwoTenants(1e5, 100, 1), TwoTenants(2e5, 200, 20));
  EXPECT_FALSE(comparison["changes"][0].contains("time_changed"));
  EXPECT_TRUE(comparison["summary"]["together"]["faster"].empty());
  EXPECT_THAT(comparison["warnings"], Contains("the old one is a quick look of 1 laps"));
  EXPECT_THAT(Printed(comparison), AllOf(HasSubstr("0.500?"), Not(HasSubstr("0.500*"))));
}

TEST(CompareResultsTest, OverheadIsComparedAtItsMedianAndItsTail) {
  const json was = Published("overhead-h200.json");
  json is = was;
  const double p99 = is["scenarios"][0]["ring_us"]["p99"];
  is["scenarios"][0]["ring_us"]["p99"] = 3 * p99;
  const json comparison = Compared(was, is);
  EXPECT_NEAR(comparison["summary"]["p99"]["time"]["worst"].get<double>(), 3, 1e-9);
  EXPECT_NEAR(comparison["summary"]["p50"]["time"]["worst"].get<double>(), 1, 1e-9);
}

TEST(CompareResultsTest, WhatCannotBeComparedIsRefused) {
  const json gemm = Published("gemm-h200.json"), random = Published("random-large-h200.json");
  EXPECT_THAT(CompareResults(gemm, Published("tenants-h200.json")).status().message(),
              HasSubstr("suite was \"gemm\" and is \"tenants\""));
  EXPECT_THAT(CompareResults(gemm, random).status().message(), HasSubstr("no scenario"));
  json modelled = gemm;
  modelled["header"]["device"] = "sim";
  EXPECT_THAT(CompareResults(gemm, modelled).status().message(), HasSubstr("device was"));
}

}  // namespace
}  // namespace concert::bench
