// The suites end to end on the simulator.
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/gemm_suite.h"
#include "tests/bench/overhead_suite.h"
#include "tests/bench/result_file.h"
#include "tests/bench/tenant_crew.h"
#include "tests/bench/tenants_suite.h"

namespace concert::bench {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

RunOptions OnTheSimulator(const std::string& name, const std::string& suite) {
  RunOptions options;
  options.device = "sim";
  options.rounds = 2;
  options.scenarios = testing::TempDir() + "/concert_suites_test_" + name + ".json";
  std::ofstream(options.scenarios) << suite;
  return options;
}

TEST(SuitesTest, GemmComparesPoliciesAndForms) {
  RunOptions options = OnTheSimulator("gemm", R"({"suite": "gemm", "scenarios": [
    {"name": "tiny", "class": "mixed", "gemms": [{"m": 16, "n": 64, "k": 32, "count": 2},
                                                 {"m": 8, "n": 24, "k": 64}]}]})");
  options.other_policies = {"priority", "no_such_policy"};
  options.forms = true;
  json result = NewResult("gemm");
  const absl::Status ran = RunGemmSuite(options, result);
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_TRUE(ValidateResult(result).ok()) << ValidateResult(result);
  EXPECT_EQ(result["header"]["baselines"], json({"serial", "streams"}));
  EXPECT_EQ(result["header"]["policies"], json({"priority"}));
  EXPECT_THAT(result["header"]["left_out"].dump(), HasSubstr("no_such_policy"));
  EXPECT_THAT(result["header"]["forms"], Contains("forced_serial"));

  ASSERT_EQ(result["scenarios"].size(), 1u);
  const json& scenario = result["scenarios"][0];
  for (const char* form : {"concert", "serial", "streams", "priority", "forced_serial",
                           "forced_streams", "isolated"}) {
    EXPECT_TRUE(scenario["times_us"].contains(form)) << form;
  }
  EXPECT_THAT(scenario["plan"].get<std::string>(), HasSubstr("GEMM"));
  EXPECT_GT(scenario["predicted_us"].get<double>(), 0);
  EXPECT_TRUE(scenario["within_3_percent"].is_boolean());
  EXPECT_TRUE(scenario["speedup_over"].contains("best_baseline"));
  EXPECT_LT(scenario["max_rel_error"].get<double>(), 1e-2);
  EXPECT_GT(result["summary"]["roofline_share"].get<double>(), 0);
  EXPECT_EQ(result["summary"]["oracle"]["scenarios"], 1);
}

TEST(SuitesTest, TenantsRunAsProcessesAndAreChecked) {
  const RunOptions options = OnTheSimulator("tenants", R"({"suite": "tenants", "scenarios": [
    {"name": "pair", "clients": 2, "chain": [{"m": 8, "n": 32, "k": 32}], "length": 3},
    {"name": "unequal", "clients": 2, "length": 2, "priority": ["high", "low"],
     "chains": [[{"m": 8, "n": 32, "k": 32}], [{"m": 16, "n": 48, "k": 24}]]}]})");
  json result = NewResult("tenants");
  const absl::Status ran = RunTenantsSuite(options, result);
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_TRUE(ValidateResult(result).ok()) << ValidateResult(result);
  ASSERT_EQ(result["scenarios"].size(), 2u + 3u) << "two of the file's, and three kinds alone";
  for (const json& scenario : result["scenarios"]) {
    const size_t clients = scenario["class"] == "alone" ? 1 : 2;
    EXPECT_EQ(scenario["client_names"].size(), clients);
    for (const char* mode : {"concert", "serial"}) {
      EXPECT_GT(scenario["throughput_per_s"][mode].get<double>(), 0);
      ASSERT_EQ(scenario["latency_us"][mode].size(), clients);
      const json& latency = scenario["latency_us"][mode].back();
      EXPECT_GE(latency["p99"], latency["p50"]);
      EXPECT_GE(latency["p50_p90"], latency["p50_p10"]);
      EXPECT_EQ(scenario.value("solo_latency_us", json::object()).contains(mode), clients > 1);
      EXPECT_EQ(scenario["client_throughput_per_s"][mode].size(), clients);
      const json& laps = scenario["client_throughput_laps_per_s"][mode].back();
      EXPECT_GE(laps["p90"], laps["p10"]);
    }
    EXPECT_GT(scenario["max_rel_error"].get<double>(), 0);
    EXPECT_LT(scenario["max_rel_error"].get<double>(), 1e-2);
  }
  // Clients that are alike share what one of them takes alone.
  EXPECT_EQ(result["scenarios"][0]["solo_latency_us"]["concert"][0],
            result["scenarios"][0]["solo_latency_us"]["concert"][1]);
  EXPECT_FALSE(result["scenarios"][0].contains("high_p99_over_solo"));
  EXPECT_GT(result["scenarios"][1]["high_p99_over_solo"]["concert"].get<double>(), 0);
  EXPECT_TRUE(result["summary"]["speedup_over"].contains("serial"));
  EXPECT_TRUE(result["summary"]["by_class"]["alone"].contains("serial"));
  EXPECT_TRUE(result["summary"]["client_losses"].is_array());
  EXPECT_EQ(result["header"]["laps"], options.rounds);
  EXPECT_TRUE(IsQuickLook(result)) << "two laps";
}

// The local way runs the kernel that the daemon takes, and the percentiles are of all samples
// together.
TEST(SuitesTest, OverheadComparesOneKernelBothWays) {
  RunOptions options;
  options.device = "sim";
  options.rounds = 2;
  json result = NewResult("overhead");
  const absl::Status ran = RunOverheadSuite(options, result);
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_TRUE(ValidateResult(result).ok()) << ValidateResult(result);
  ASSERT_EQ(result["scenarios"].size(), 2u);
  EXPECT_EQ(result["scenarios"][0]["local_form"], result["scenarios"][0]["plans"][0]["form"])
      << result["scenarios"][0]["plan"];
  for (const json& scenario : result["scenarios"]) {
    for (const char* quantile : {"p50", "p90", "p99"}) {
      EXPECT_DOUBLE_EQ(scenario["added_us"][quantile].get<double>(),
                       scenario["ring_us"][quantile].get<double>() -
                           scenario["local_us"][quantile].get<double>());
      EXPECT_TRUE(scenario["added_us_by_block"].contains(quantile));
    }
  }
}

constexpr char kPair[] = R"({"suite": "tenants", "scenarios": [
    {"name": "pair", "clients": 2, "chain": [{"m": 8, "n": 32, "k": 16}], "length": 1}]})";

// A GPU that no machine has, so that clients that compute themselves cannot start.
TenantStage StageWithoutBaselines(const RunOptions& options) {
  return {.options = options,
          .place = {.suite = "tenants", .is_sim = true, .uuid = std::string(32, '0')},
          .turns = {{{.name = "concert", .policy = "auto"}, {.name = "time_sliced", .policy = ""}}},
          .alone = {},
          .rivals = {.baselines = {"time_sliced"}, .policies = {}}};
}

TEST(SuitesTest, ABaselineThatCannotRunSaysWhyAndTheRestIsMeasured) {
  const RunOptions options = OnTheSimulator("no_baseline", kPair);
  const auto scenarios = ReadTenantScenarios(options.scenarios, "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  const auto entry = MeasureTenants(StageWithoutBaselines(options), scenarios->front());
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_TRUE((*entry)["times_us"].contains("concert"));
  EXPECT_FALSE((*entry)["times_us"].contains("time_sliced"));
  EXPECT_TRUE((*entry)["speedup_over"].empty());
  ASSERT_EQ((*entry)["unavailable"].size(), 1u);
  EXPECT_EQ((*entry)["unavailable"][0]["name"], "time_sliced");
  const std::string why = (*entry)["unavailable"][0]["why"];
  EXPECT_THAT(why, HasSubstr("client 0 of 2 (8x32x16 x1) failed opening the GPU"));
  EXPECT_THAT(why, HasSubstr("client 1 of 2")) << "one after the other, all of them say it";
  EXPECT_THAT(why, HasSubstr("under MPS: no"));
}

TEST(SuitesTest, AScenarioFailsWhereConcertDoes) {
  RunOptions options = OnTheSimulator("no_concert", kPair);
  options.socket = "/no/such/concert.sock";
  const auto scenarios = ReadTenantScenarios(options.scenarios, "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  const auto entry = MeasureTenants(StageWithoutBaselines(options), scenarios->front());
  EXPECT_THAT(entry.status().message(),
              testing::AllOf(HasSubstr("concert: "), HasSubstr("/no/such/concert.sock")));
}

TEST(SuitesTest, EveryClientThatCannotStartSaysWhy) {
  const RunOptions options = OnTheSimulator("no_daemon", kPair);
  const auto scenarios = ReadTenantScenarios(options.scenarios, "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  TenantCrew::Options members;
  members.suite = "tenants";
  members.scenarios = options.scenarios;
  members.socket = "/no/such/concert.sock";
  const auto crew = TenantCrew::Start(GroupOf(scenarios->front()), members);
  ASSERT_TRUE(crew.ok()) << crew.status();
  const std::string why((*crew)->AwaitReady().message());
  EXPECT_THAT(why, HasSubstr("/no/such/concert.sock"));
  EXPECT_THAT(why, testing::AllOf(HasSubstr("client 0 of 2"), HasSubstr("client 1 of 2")));
}

}  // namespace
}  // namespace concert::bench
