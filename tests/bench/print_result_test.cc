#include "tests/bench/print_result.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(PrintResultTest, AFormThatOneScenarioLacksHasItsColumn) {
  const json result = json::parse(R"({
    "scenarios": [{"name": "a", "times_us": {"concert": {"p50": 10}, "serial": {"p50": 40}},
                   "speedup_over": {"serial": 4.0, "best_baseline": 4.0}},
                  {"name": "b", "times_us": {"concert": {"p50": 10}, "mps": {"p50": 12.5}},
                   "unavailable": [{"name": "serial", "why": "no memory"}]}],
    "summary": {"speedup_over": {"serial": {"geomean": 4, "worst": 4, "best": 4}},
                "lost_to_best_baseline": ["b"], "failed": [{"name": "c", "why": "it broke"}]}})");
  std::ostringstream out;
  PrintComparison(result, out);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("serial"), HasSubstr("12.50"), HasSubstr("  -  "),
                               HasSubstr("geomean 4.00x"), HasSubstr("it broke"),
                               HasSubstr("serial could not run b: no memory")));
}

TEST(PrintResultTest, ALoserIsNamed) {
  const json result = json::parse(R"({"scenarios": [], "summary": {"client_losses": [
    {"scenario": "mixed", "client": "8x16x32 x4", "clients": 2, "over": "mps", "what": "p99",
     "speedup": 0.481}]}})");
  std::ostringstream out;
  PrintComparison(result, out);
  EXPECT_THAT(out.str(), HasSubstr("loses: mixed, 2 of 8x16x32 x4: 0.48x as fast as mps in p99"));
}

TEST(PrintResultTest, WhatIsLeftBesideOthersIsSaidOfEachKindOfClient) {
  json result = json::parse(R"({"summary": {}, "scenarios": [
    {"name": "a", "times_us": {}, "client_names": ["s, high", "s, high", "m"],
     "high_p99_over_solo": {"concert": 1.2},
     "kept_of_alone": {"concert": [0.9, 0.8, 0.7], "mps": [0.1, 0.1, 0.2]},
     "p99_over_alone": {"concert": [1.2, 1.1, 1.5], "mps": [3, 3, 2]}}]})");
  const auto printed = [&] {
    std::ostringstream out;
    PrintComparison(result, out);
    return out.str();
  };
  EXPECT_THAT(printed(), HasSubstr("a, m, of its speed and p99 alone: concert 0.70x and 1.50x; mps "
                                   "0.20x and 2.00x;\n"));
  EXPECT_THAT(printed(),
              HasSubstr("a, s, high, of its speed and p99 alone: concert 0.80x and 1.20x"))
      << "the least of clients alike";
  result["scenarios"][0].erase("high_p99_over_solo");
  EXPECT_THAT(printed(), Not(HasSubstr("alone"))) << "without priorities there are too many";
}

TEST(PrintResultTest, WhatIsModelledOrAQuickLookSaysSoFirst) {
  const auto caveats = [](const char* text) {
    std::ostringstream out;
    PrintCaveats(json::parse(text), out);
    return out.str();
  };
  EXPECT_THAT(caveats(R"({"suite": "gemm", "header": {"device": "sim", "rounds": 20}})"),
              StartsWith("modelled H200, results computed on this CPU"));
  EXPECT_THAT(caveats(R"({"suite": "gemm", "header": {"device": "cuda", "rounds": 2}})"),
              StartsWith("quick look of 2 rounds"));
  EXPECT_EQ(caveats(R"({"suite": "gemm", "header": {"device": "cuda", "rounds": 20}})"), "");
  // Its rounds were not laps once.
  EXPECT_THAT(caveats(R"({"suite": "tenants", "header": {"device": "cuda", "rounds": 40}})"),
              StartsWith("quick look"));
}

TEST(PrintResultTest, ASuiteThatFailedAtOnceHasNoSummaryYet) {
  std::ostringstream out;
  PrintComparison({{"scenarios", json::array()}, {"summary", json::object()}}, out);
  EXPECT_THAT(out.str(), HasSubstr("scenario"));
}

}  // namespace
}  // namespace concert::bench
