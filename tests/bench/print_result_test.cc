#include "tests/bench/print_result.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

TEST(PrintResultTest, ASuiteThatFailedAtOnceHasNoSummaryYet) {
  std::ostringstream out;
  PrintComparison({{"scenarios", json::array()}, {"summary", json::object()}}, out);
  EXPECT_THAT(out.str(), HasSubstr("scenario"));
}

}  // namespace
}  // namespace concert::bench
