#include "tests/bench/step_scenario.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/step_data.h"
#include "tests/bench/step_reference.h"

namespace concert::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string StepsFile(const std::string& clients, const std::string& vocabulary = "0") {
  return R"({"suite": "steps", "scenarios": [{"name": "a", "models": [{"id": "m", "hidden": 64,
    "heads": 2, "kv_heads": 1, "head_dim": 64, "ffn": 96, "layers": 2, "vocab": )" +
         vocabulary + R"(}], "clients": [)" + clients + "]}]}";
}

std::vector<StepScenario> ParseSteps(const std::string& text) {
  const auto scenarios = ParseStepScenarios(text, "x.json", "");
  EXPECT_TRUE(scenarios.ok()) << scenarios.status();
  return scenarios.ok() ? *scenarios : std::vector<StepScenario>{};
}

std::string StepsErrorOf(const std::string& clients) {
  const auto scenarios = ParseStepScenarios(StepsFile(clients), "x.json", "");
  return scenarios.ok() ? "" : std::string(scenarios.status().message());
}

TEST(StepScenarioTest, CountsAreWrittenOutAndLengthsSpread) {
  const auto scenarios = ParseSteps(StepsFile(
      R"({"model": "m", "count": 2, "batch": 3, "context": [10, 31], "priority": "low"},
         {"model": "m", "batch": 1, "context": 7, "weights": "shared"},
         {"model": "m", "batch": 1, "context": 7, "weights": "shared"})"));
  ASSERT_EQ(scenarios.size(), 1u);
  const auto& clients = scenarios[0].clients;
  ASSERT_EQ(clients.size(), 4u);
  EXPECT_THAT(clients[1].lengths, ElementsAre(10, 21, 31));
  EXPECT_EQ(clients[1].longest(), 31u);
  EXPECT_EQ(ClientName(clients[1]), "m: 2 layers of 64, batch 3, context 10 to 31, low");
  EXPECT_NE(clients[0].weights_seed, clients[1].weights_seed);
  EXPECT_EQ(clients[2].weights_seed, clients[3].weights_seed);
  EXPECT_EQ(WeightsOf(scenarios[0]), "mixed");
}

TEST(StepScenarioTest, TheBoundCountsSharedWeightsOnce) {
  // Two layers of 64 x (256 + 128) and 3 x 64 x 96 weights and two norms, and the last norm.
  const double weights = 2 * (2 * (64 * 256 + 128 * 64 + 3 * 64 * 96 + 128) + 64);
  const double state = 2 * (2 * 64 * 2 * (7 + 1));  // one row of 7 tokens, one of them written
  const auto of = [&](const char* kind) {
    return BoundStepsPerS(ParseSteps(StepsFile(std::string(R"({"model": "m", "count": 2, "batch": 1,
        "context": 7, "weights": ")") + kind + "\"}"))[0]);
  };
  EXPECT_NEAR(of("own"), 4.2e12 / (weights + state), 1);
  EXPECT_NEAR(of("shared"), 2 * 4.2e12 / (weights + 2 * state), 1);
}

TEST(StepScenarioTest, PrefillIsSkippedAndMistakesAreNamed) {
  const auto scenarios = ParseSteps(
      StepsFile(R"({"model": "m", "batch": 1, "context": 0, "role": "prefill", "chunk": 8})"));
  ASSERT_EQ(scenarios.size(), 1u);
  EXPECT_THAT(scenarios[0].unsupported, HasSubstr("prefill"));
  EXPECT_THAT(StepsErrorOf(R"({"model": "x", "batch": 1, "context": 1})"),
              HasSubstr("no model \"x\""));
  EXPECT_THAT(StepsErrorOf(R"({"model": "m", "batch": 0, "context": 1})"), HasSubstr("batch is 0"));
  EXPECT_THAT(StepsErrorOf(R"({"model": "m", "batch": 1, "context": [1]})"),
              HasSubstr("context is"));
  EXPECT_THAT(StepsErrorOf(R"({"model": "m", "batch": 1, "context": 1, "weights": 3})"),
              HasSubstr("weights is 3"));
  EXPECT_THAT(StepsErrorOf(R"({"model": "m", "batch": 1, "context": 1, "priority": "top"})"),
              HasSubstr("priority is \"top\""));
}

TEST(StepScenarioTest, ThePublicSuiteParses) {
  std::ifstream file(CONCERT_SCENARIOS "/steps.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto scenarios = ParseSteps(text);
  EXPECT_GE(scenarios.size(), 19u);
  // 12 layers of 1024: 308 MB of weights and 201 MB of keys and values for each of eight clients.
  const auto eight = std::ranges::find(scenarios, "decode-1024-x8", &StepScenario::name);
  ASSERT_NE(eight, scenarios.end());
  EXPECT_NEAR(BoundStepsPerS(*eight), 8250, 50);
}

TEST(StepDataTest, EverySequenceHasPagesOfItsOwn) {
  const auto scenarios = ParseSteps(StepsFile(R"({"model": "m", "batch": 4, "context": [1, 50]})"));
  const StepData data(scenarios[0].clients[0], 0);
  std::set<uint64_t> slots;
  uint64_t tokens = 0;
  for (uint32_t row = 0; row < data.batch(); ++row) {
    for (uint32_t token = 0; token < data.client().lengths[row]; ++token, ++tokens) {
      slots.insert(data.SlotOf(row, token));
      EXPECT_LT(data.SlotOf(row, token), uint64_t{data.pages()} * StepData::kPageSize);
    }
  }
  EXPECT_EQ(slots.size(), tokens);
}

// Else sealing them would save nothing.
TEST(StepDataTest, ClientsThatShareWeightsHaveTheSameOnesAndStateOfTheirOwn) {
  const auto scenarios = ParseSteps(StepsFile(
      R"({"model": "m", "count": 2, "batch": 1, "context": 7, "weights": "shared"})", "50"));
  const StepData data(scenarios[0].clients[0], 0), other(scenarios[0].clients[1], 1);
  for (const StepTensor tensor :
       {StepTensor::kTable, StepTensor::kFinalNorm, StepTensor::kHidden, StepTensor::kNorm,
        StepTensor::kQkv, StepTensor::kOut, StepTensor::kMlpNorm, StepTensor::kGateUp,
        StepTensor::kDown, StepTensor::kKeys, StepTensor::kValues}) {
    EXPECT_EQ(data.Whole(tensor, 0) == other.Whole(tensor, 0), StepData::IsWeight(tensor))
        << static_cast<uint32_t>(tensor);
  }
}

TEST(StepDataTest, PartsAreThoseOfTheWhole) {
  const auto scenarios = ParseSteps(StepsFile(R"({"model": "m", "batch": 1, "context": 5})"));
  const StepData data(scenarios[0].clients[0], 3);
  const auto whole = data.Whole(StepTensor::kGateUp, 1);
  const auto part = data.Rows(StepTensor::kGateUp, 1, 70, 2);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 70 * 64));
  EXPECT_NE(whole, data.Whole(StepTensor::kGateUp, 0)) << "each layer has its own";
  const StepData other(scenarios[0].clients[0], 4);
  EXPECT_EQ(whole, other.Whole(StepTensor::kGateUp, 1)) << "weights go by their seed";
  EXPECT_NE(data.Whole(StepTensor::kKeys, 1), other.Whole(StepTensor::kKeys, 1));
}

TEST(StepReferenceTest, ErrorsAreRelativeAndSeeNan) {
  const std::vector<float> right = {3, 4};
  const std::vector<uint16_t> same = {0x4040, 0x4080}, nan = {0x4040, 0xFFFF};  // 3, 4
  EXPECT_EQ(StepError(right, same), 0);
  EXPECT_NEAR(StepError(std::vector<float>{3, 3}, same), 1 / std::sqrt(18.0), 1e-6);
  EXPECT_TRUE(std::isnan(StepError(right, nan)));
}

}  // namespace
}  // namespace concert::bench
