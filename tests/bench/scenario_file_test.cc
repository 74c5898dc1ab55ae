#include "tests/bench/scenario_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace concert::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Suite(const std::string& scenarios) {
  return R"({"suite": "gemm", "scenarios": [)" + scenarios + "]}";
}

std::string ErrorOf(const std::string& text, const std::string& filter = "") {
  const auto scenarios = ParseGemmScenarios(text, "x.json", filter);
  return scenarios.ok() ? "" : std::string(scenarios.status().message());
}

TEST(ScenarioFileTest, WritesCountsOutAndDefaultsToBf16) {
  const auto scenarios = ParseGemmScenarios(
      Suite(R"({"name": "a", "class": "mixed", "gemms": [{"m": 1, "n": 2, "k": 3, "count": 2},
                {"m": 4, "n": 5, "k": 6, "dtype": "fp32"}]})"),
      "x.json", "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  ASSERT_EQ(scenarios->size(), 1u);
  const GemmScenario& scenario = scenarios->front();
  EXPECT_EQ(scenario.group, "mixed");
  ASSERT_EQ(scenario.gemms.size(), 3u);
  EXPECT_EQ(scenario.gemms[1].n, 2u);
  EXPECT_EQ(scenario.gemms[1].dtype, Dtype::kBf16);
  EXPECT_EQ(scenario.gemms[2].dtype, Dtype::kFp32);
  EXPECT_DOUBLE_EQ(scenario.gemms[2].flops(), 2 * 4 * 5 * 6);
  EXPECT_DOUBLE_EQ(scenario.gemms[2].bytes(), 4 * (4 * 6 + 5 * 6 + 4 * 5));
}

TEST(ScenarioFileTest, FilterSelectsByName) {
  const std::string suite = Suite(R"({"name": "ab", "gemms": [{"m": 1, "n": 1, "k": 1}]},
                                     {"name": "bc", "gemms": [{"m": 1, "n": 1, "k": 1}]})");
  EXPECT_EQ(ParseGemmScenarios(suite, "x.json", "b")->size(), 2u);
  EXPECT_EQ(ParseGemmScenarios(suite, "x.json", "^b")->front().name, "bc");
  EXPECT_THAT(ErrorOf(suite, "zzz"), AllOf(HasSubstr("x.json"), HasSubstr("zzz")));
  EXPECT_THAT(ErrorOf(suite, "["), HasSubstr("no regular expression"));
}

TEST(ScenarioFileTest, BadFilesGetASentence) {
  EXPECT_THAT(ErrorOf("{"), HasSubstr("x.json is not valid JSON"));
  EXPECT_THAT(ErrorOf(R"({"suite": "c3", "scenarios": []})"), HasSubstr("no gemm suite"));
  EXPECT_THAT(ErrorOf(R"({"suite": "gemm"})"), HasSubstr("no gemm suite"));
  EXPECT_THAT(ErrorOf(Suite("7")), HasSubstr("scenario 0 is not an object"));
  EXPECT_THAT(ErrorOf(Suite(R"({"gemms": []})")), HasSubstr("scenario 0 has no name"));
  EXPECT_THAT(ErrorOf(Suite(R"({"name": "a", "gemms": []})")), HasSubstr("'a': gemms must be"));
  EXPECT_THAT(ErrorOf(Suite(R"({"name": "a", "gemms": [7]})")),
              HasSubstr("GEMM 0 is not an object"));
  EXPECT_THAT(ErrorOf(Suite(R"({"name": "a", "gemms": [{"m": 1, "n": 1, "k": 1}], "repeat": 2})")),
              HasSubstr("'a': unknown key 'repeat'"));
}

TEST(ScenarioFileTest, BadFieldsAreNamedWithTheirValue) {
  const auto gemm = [](const std::string& fields) {
    return Suite(R"({"name": "a", "gemms": [{)" + fields + "}]}");
  };
  EXPECT_THAT(ErrorOf(gemm(R"("m": 0, "n": 1, "k": 1)")),
              AllOf(HasSubstr("m is 0"), HasSubstr("between 1")));
  EXPECT_THAT(ErrorOf(gemm(R"("m": 1, "n": -4, "k": 1)")), HasSubstr("n is -4"));
  EXPECT_THAT(ErrorOf(gemm(R"("m": 1, "n": 1)")), HasSubstr("k is missing"));
  EXPECT_THAT(ErrorOf(gemm(R"("m": 1.5, "n": 1, "k": 1)")), HasSubstr("m is 1.5"));
  EXPECT_THAT(ErrorOf(gemm(R"("m": 99999999999, "n": 1, "k": 1)")), HasSubstr("m is 99999999999"));
  EXPECT_THAT(ErrorOf(gemm(R"("m": 1, "n": 1, "k": 1, "count": 0)")), HasSubstr("count is 0"));
  EXPECT_THAT(ErrorOf(gemm(R"("m": 1, "n": 1, "k": 1, "dtype": "int8")")),
              AllOf(HasSubstr("dtype is \"int8\""), HasSubstr("bf16")));
  EXPECT_THAT(ErrorOf(gemm(R"("m": 1, "n": 1, "k": 1, "mm": 1)")), HasSubstr("unknown key 'mm'"));
}

TEST(ScenarioFileTest, Fp8IsWrittenAsBf16) {
  const auto scenarios = ParseGemmScenarios(
      Suite(R"({"name": "a", "gemms": [{"m": 4, "n": 5, "k": 6, "dtype": "fp8_e4m3"}]})"), "x.json",
      "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  EXPECT_EQ(scenarios->front().unsupported, "");
  const GemmShape& shape = scenarios->front().gemms.front();
  EXPECT_EQ(shape.dtype, Dtype::kFp8E4m3);
  EXPECT_EQ(shape.d_dtype(), Dtype::kBf16);
  EXPECT_EQ(shape.bytes(), 4 * 6 + 5 * 6 + 2 * 4 * 5);
}

TEST(ScenarioFileTest, E5m2IsKnownButUnsupported) {
  const auto scenarios = ParseGemmScenarios(
      Suite(R"({"name": "a", "gemms": [{"m": 1, "n": 1, "k": 1, "dtype": "fp8_e5m2"}]})"), "x.json",
      "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  EXPECT_THAT(scenarios->front().unsupported, HasSubstr("fp8_e5m2"));
}

TEST(ScenarioFileTest, NamesAreUnique) {
  EXPECT_THAT(ErrorOf(Suite(R"({"name": "a", "gemms": [{"m": 1, "n": 1, "k": 1}]},
                               {"name": "a", "gemms": [{"m": 1, "n": 1, "k": 1}]})")),
              HasSubstr("two scenarios are named 'a'"));
}

TEST(ScenarioFileTest, ThePublicSuiteParses) {
  const auto scenarios = ReadGemmScenarios(CONCERT_SCENARIOS "/gemm.json", "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  EXPECT_GE(scenarios->size(), 50u);
  EXPECT_THAT(ReadGemmScenarios("/no/such/file", "").status().message(),
              HasSubstr("/no/such/file"));
}

std::string Tenants(const std::string& scenario) {
  return R"({"suite": "tenants", "scenarios": [)" + scenario + "]}";
}

std::string TenantErrorOf(const std::string& scenario) {
  const auto scenarios = ParseTenantScenarios(Tenants(scenario), "x.json", "");
  return scenarios.ok() ? "" : std::string(scenarios.status().message());
}

TEST(TenantScenarioTest, ChainsAreRepeatedToTheirLength) {
  const auto scenarios = ParseTenantScenarios(Tenants(R"({"name": "a", "clients": 2, "length": 3,
                  "chain": [{"m": 1, "n": 2, "k": 3}, {"m": 4, "n": 5, "k": 6}]})"),
                                              "x.json", "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  ASSERT_EQ(scenarios->front().clients.size(), 2u);
  const std::vector<GemmShape>& gemms = scenarios->front().clients[1].chain.gemms;
  ASSERT_EQ(gemms.size(), 3u);
  EXPECT_EQ(gemms[1].n, 5u);
  EXPECT_EQ(gemms[2].n, 2u);
  EXPECT_FALSE(scenarios->front().has_priorities());
}

TEST(TenantScenarioTest, ClientsMayHaveChainsAndPrioritiesOfTheirOwn) {
  const auto scenarios = ParseTenantScenarios(
      Tenants(R"({"name": "a", "clients": 2, "length": 1, "priority": ["high", "low"],
                  "chains": [[{"m": 1, "n": 2, "k": 3}], [{"m": 4, "n": 5, "k": 6}]]})"),
      "x.json", "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  const TenantScenario& scenario = scenarios->front();
  EXPECT_EQ(scenario.clients[0].chain.gemms[0].m, 1u);
  EXPECT_EQ(scenario.clients[1].chain.gemms[0].m, 4u);
  EXPECT_EQ(scenario.clients[0].priority, 1);
  EXPECT_EQ(scenario.clients[1].priority, -1);
  EXPECT_TRUE(scenario.has_priorities());
}

TEST(TenantScenarioTest, EveryKindOfClientAlsoHasTheGpuToItself) {
  const std::string text = Tenants(R"(
      {"name": "a", "clients": 2, "length": 4, "priority": ["high", "low"],
       "chains": [[{"m": 1, "n": 2, "k": 3}],
                  [{"m": 4, "n": 5, "k": 6}, {"m": 7, "n": 8, "k": 9, "dtype": "fp8_e4m3"}]]},
      {"name": "b", "clients": 8, "length": 4, "chain": [{"m": 1, "n": 2, "k": 3}]},
      {"name": "c", "clients": 8, "length": 2, "chain": [{"m": 1, "n": 2, "k": 3}]},
      {"name": "d", "clients": 1, "length": 2, "chain": [{"m": 1, "n": 2, "k": 3}]})");
  const auto scenarios = ParseTenantScenarios(text, "x.json", "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  ASSERT_EQ(scenarios->size(), 4u + 2u) << "d is c's kind alone already";
  EXPECT_EQ((*scenarios)[4].name, "alone-1x2x3-x4");
  EXPECT_EQ((*scenarios)[5].name, "alone-4x5x6+7x8x9-fp8_e4m3-x4");
  ASSERT_EQ((*scenarios)[5].clients.size(), 1u);
  EXPECT_EQ((*scenarios)[5].clients[0].chain.gemms.size(), 4u);
  EXPECT_EQ(ClientName((*scenarios)[0].clients[0]), "1x2x3 x4, high");
  EXPECT_EQ((*scenarios)[4].clients[0].priority, 0) << "above nobody";
  // A filter chooses among them as among the file's own.
  const auto chosen = ParseTenantScenarios(text, "x.json", "^alone-1");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->size(), 1u);
}

TEST(TenantScenarioTest, BadOnesGetASentence) {
  const std::string chain = R"("chain": [{"m": 1, "n": 2, "k": 3}])";
  EXPECT_THAT(TenantErrorOf(R"({"name": "a", "clients": 0, "length": 1, )" + chain + "}"),
              AllOf(HasSubstr("'a'"), HasSubstr("clients is 0")));
  EXPECT_THAT(TenantErrorOf(R"({"name": "a", "clients": 1, )" + chain + "}"),
              HasSubstr("length is missing"));
  EXPECT_THAT(TenantErrorOf(R"({"name": "a", "clients": 1, "length": 1})"),
              HasSubstr("chain must be a list"));
  EXPECT_THAT(TenantErrorOf(R"({"name": "a", "clients": 2, "length": 1,
                                "chains": [[{"m": 1, "n": 2, "k": 3}]]})"),
              HasSubstr("chains[1] must be a list"));
  EXPECT_THAT(TenantErrorOf(R"({"name": "a", "clients": 1, "length": 1, "priority": ["urgent"], )" +
                            chain + "}"),
              HasSubstr("\"urgent\"; it must be"));
  EXPECT_THAT(TenantErrorOf(R"({"name": "a", "clients": 1, "length": 1, "gpu": 1, )" + chain + "}"),
              HasSubstr("unknown key 'gpu'"));
  EXPECT_THAT(ParseTenantScenarios(R"({"suite": "gemm", "scenarios": []})", "x.json", "")
                  .status()
                  .message(),
              HasSubstr("no tenants suite"));
}

TEST(TenantScenarioTest, ThePublicSuiteIsValid) {
  const auto scenarios = ReadTenantScenarios(CONCERT_SCENARIOS "/tenants.json", "");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  EXPECT_EQ(scenarios->size(), 14u + 7u) << "seven different chains, each alone, too";
}

// A GEMM beside an all-reduce, with the keys of `changes` in place of its own.
std::string OverlapErrorOf(const nlohmann::json& changes) {
  nlohmann::json scenario = {{"name", "a"},
                             {"gpus", 2},
                             {"gemm", {{"m", 8}, {"n", 16}, {"k", 32}}},
                             {"collective", {{"kind", "all_reduce"}, {"bytes", 4096}}}};
  scenario.update(changes);
  const nlohmann::json suite = {{"suite", "c3"}, {"scenarios", {scenario}}};
  const auto scenarios = ParseOverlapScenarios(suite.dump(), "x.json", "");
  return scenarios.ok() ? "" : std::string(scenarios.status().message());
}

TEST(ScenarioFileTest, ReadsGemmsBesideCollectives) {
  const auto scenarios = ReadOverlapScenarios(CONCERT_SCENARIOS "/c3.json", "all_gather-64MiB");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  const OverlapScenario& scenario = scenarios->front();
  EXPECT_EQ(scenario.gemm.m, 8192u);
  EXPECT_EQ(scenario.collective.kind, CollectiveKind::kAllGather);
  EXPECT_EQ(scenario.collective.bytes, 64u << 20);
  EXPECT_EQ(scenario.collective.ranks, 2u);
}

TEST(ScenarioFileTest, NamesWhatIsWrongWithACollective) {
  EXPECT_EQ(OverlapErrorOf(nlohmann::json::object()), "");
  EXPECT_THAT(OverlapErrorOf({{"gpus", 0}}), AllOf(HasSubstr("'a'"), HasSubstr("gpus is 0")));
  EXPECT_THAT(OverlapErrorOf({{"repeat", -1}}), HasSubstr("repeat is -1"));
  EXPECT_THAT(OverlapErrorOf({{"collective", 5}}), HasSubstr("collective is not an object"));
  EXPECT_THAT(OverlapErrorOf({{"collective", {{"kind", "gather"}, {"bytes", 4}}}}),
              AllOf(HasSubstr("\"gather\""), HasSubstr("all_to_all")));
  EXPECT_THAT(OverlapErrorOf({{"collective", {{"kind", "broadcast"}, {"bytes", 6}}}}),
              HasSubstr("a multiple of 4"));
  EXPECT_THAT(OverlapErrorOf({{"ranks", 2}}), HasSubstr("unknown key 'ranks'"));
}

}  // namespace
}  // namespace concert::bench
