// The suites "c3" and "collectives" end to end on the simulator, which has two GPUs.
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/c3_suite.h"
#include "tests/bench/collectives_suite.h"
#include "tests/bench/rank_crew.h"
#include "tests/bench/rank_stage.h"
#include "tests/bench/result_file.h"

namespace concert::bench {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(OverlapSuitesTest, C3ComparesPoliciesAndForms) {
  RunOptions options;
  options.device = "sim";
  options.rounds = 2;
  options.forms = true;
  options.scenarios = testing::TempDir() + "/concert_overlap_suites_test.json";
  std::ofstream(options.scenarios) << R"({"suite": "c3", "scenarios": [
    {"name": "gather", "gpus": 2, "gemm": {"m": 8, "n": 32, "k": 16}, "repeat": 3,
     "collective": {"kind": "all_gather", "bytes": 65536, "dtype": "bf16"}},
    {"name": "reduce", "gpus": 2, "gemm": {"m": 8, "n": 32, "k": 16},
     "collective": {"kind": "all_reduce", "bytes": 262144}},
    {"name": "more", "gpus": 4, "gemm": {"m": 8, "n": 32, "k": 16},
     "collective": {"kind": "broadcast", "bytes": 4096}}]})";
  json result = NewResult("c3");
  int kept = 0;
  options.keep = [&](const json& so_far) { kept += so_far["scenarios"].empty() ? 0 : 1; };
  const absl::Status ran = RunC3Suite(options, result);
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_TRUE(ValidateResult(result).ok()) << ValidateResult(result);
  EXPECT_EQ(kept, 2) << "after each scenario";
  EXPECT_EQ(result["header"]["gpus"], 2);
  EXPECT_EQ(result["header"]["baselines"], json({"serial", "streams", "priority", "conccl"}));
  ASSERT_EQ(result["summary"]["skipped"].size(), 1u);
  EXPECT_THAT(result["summary"]["skipped"][0]["why"].get<std::string>(), HasSubstr("4 GPUs"));

  ASSERT_EQ(result["scenarios"].size(), 2u);
  for (const json& scenario : result["scenarios"]) {
    EXPECT_FALSE(scenario.contains("unavailable")) << scenario["unavailable"];
    const bool gathers = scenario["name"] == "gather";
    for (const char* form : {"concert", "serial", "streams", "priority", "gemm_alone",
                             "collective_alone", "form_p2p4", "form_nccl", "form_serial"}) {
      EXPECT_TRUE(scenario["times_us"].contains(form)) << form;
    }
    // Copy engines reduce nothing, and the hybrid carries all-reduce only.
    EXPECT_EQ(scenario["times_us"].contains("conccl"), gathers);
    EXPECT_EQ(scenario["times_us"].contains("form_ce"), gathers);
    EXPECT_EQ(scenario["times_us"].contains("form_hybrid8"), !gathers);
    EXPECT_TRUE(scenario["within_3_percent"].is_boolean());
    EXPECT_GE(scenario["bound_us"], scenario["ideal_us"]);
    EXPECT_GT(scenario["max_rel_error"].get<double>(), 0) << "bf16 is rounded";
    EXPECT_LT(scenario["max_rel_error"].get<double>(), 1e-2);
    EXPECT_THAT(scenario["plan"].get<std::string>(), HasSubstr("GEMM"));
    EXPECT_THAT(scenario["collective_plan"].get<std::string>(),
                HasSubstr(gathers ? "all_gather" : "all_reduce"));
    EXPECT_GT(scenario["predicted_us"].get<double>(), 0);
  }
  EXPECT_EQ(result["summary"]["oracle"]["scenarios"], 2);
}

TEST(OverlapSuitesTest, CollectivesHaveTimesAloneAndBesideGemms) {
  RunOptions options;
  options.device = "sim";
  options.rounds = 2;
  options.filter = "^all_(reduce|to_all)-(1|64)KiB$";
  json result = NewResult("collectives");
  const absl::Status ran = RunCollectivesSuite(options, result);
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_TRUE(ValidateResult(result).ok()) << ValidateResult(result);
  ASSERT_EQ(result["scenarios"].size(), 4u);
  for (const json& scenario : result["scenarios"]) {
    for (const char* name : {"concert", "nccl", "concert_8_sms", "nccl_8_ctas"}) {
      EXPECT_GT(scenario["busbw_gb_per_s"][name].get<double>(), 0);
      EXPECT_GT(scenario["beside_us"][name]["p50"].get<double>(), 0);
      EXPECT_GT(scenario["gemms_beside_us"][name]["p50"].get<double>(), 0);
      for (const char* one : {"beside_us", "gemms_beside_us"})
        EXPECT_GE(scenario["both_us"][name]["p50"], scenario[one][name]["p50"]);
    }
    EXPECT_GE(scenario["gemms_beside"], 1);
    EXPECT_LT(scenario["max_rel_error"].get<double>(), 1e-2);
  }
  EXPECT_EQ(result["scenarios"][1]["bytes"], 64 << 10);
  EXPECT_TRUE(result["summary"]["small"].contains("worst"));
}

TEST(OverlapSuitesTest, ADaemonThatDoesNotComeUpIsLeftOut) {
  RunOptions options;
  options.device = "sim";
  json header;
  const auto stage = RankStage::Open(options, header);
  ASSERT_TRUE(stage.ok()) << stage.status();
  (*stage)->Add({{.name = "bad", .policy = "no_such_policy"}, {.name = "good", .policy = "serial"}},
                header);
  ASSERT_EQ((*stage)->contenders().size(), 2u);
  EXPECT_EQ((*stage)->contenders()[1].name, "good");
  EXPECT_THAT(header["left_out"].dump(), HasSubstr("no_such_policy"));
}

TEST(OverlapSuitesTest, AContenderThatCannotBeHadSaysWhy) {
  const auto crew = RankCrew::Start({.gpu_uuids = {std::string(32, '0'), std::string(32, '1')},
                                     .contenders = {"/no/such/concert.sock"},
                                     .sizes = {.gemm = 256, .source = 256, .output = 256}});
  ASSERT_TRUE(crew.ok()) << crew.status();
  EXPECT_THAT((*crew)->Verify(0).status().message(),
              testing::AllOf(HasSubstr("rank 0: "), HasSubstr("/no/such/concert.sock")));
}

}  // namespace
}  // namespace concert::bench
