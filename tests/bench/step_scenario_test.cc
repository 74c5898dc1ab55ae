#include "tests/bench/step_scenario.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/memory_limit.h"
#include "tests/bench/result_file.h"
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
        "context": 7, "weights": ")") + kind + "\"}"))[0],
                          4.2e12);
  };
  EXPECT_NEAR(of("own"), 4.2e12 / (weights + state), 1);
  EXPECT_NEAR(of("shared"), 2 * 4.2e12 / (weights + 2 * state), 1);
}

TEST(StepScenarioTest, StepsOfClientsUnlikeEachOtherCountByWhatEachTakes) {
  const auto scenarios = ParseSteps(StepsFile(R"({"model": "m", "batch": 1, "context": 7},
                   {"model": "m", "batch": 1, "context": 4096, "count": 2, "weights": "shared"})"));
  const StepScenario& scenario = scenarios[0];
  const auto alone = [&](size_t client) {
    const StepScenario one{.name = "one", .clients = {scenario.clients[client]}};
    return BoundStepsPerS(one, 4.2e12);
  };
  EXPECT_NEAR(ShareOfBound(scenario, {alone(0), 0, 0}, 4.2e12), 1, 1e-9);
  EXPECT_NEAR(ShareOfBound(scenario, {0.5 * alone(0), 0.25 * alone(1), 0}, 4.2e12), 0.75, 1e-9);
  EXPECT_LT(ShareOfBound(scenario, {0, 0.25 * alone(1), 0.25 * alone(2)}, 4.2e12), 0.5 - 1e-3);
  const double all_alike = BoundStepsPerS(scenario, 4.2e12) / 3;
  EXPECT_NEAR(ShareOfBound(scenario, {all_alike, all_alike, all_alike}, 4.2e12), 1, 1e-9);
}

// Of the GPU that was measured: a file from before a memory was known must not keep another's.
TEST(StepScenarioTest, PublishedBoundsAreThoseOfTheScenarios) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(CONCERT_RESULTS)) {
    const std::string name = file.path().filename();
    if (!name.starts_with("steps-") || file.path().extension() != ".json") continue;
    ++files;
    const auto result = ReadResult(file.path());
    ASSERT_TRUE(result.ok()) << result.status();
    const double memory = MemoryBytesPerS((*result)["header"]["gpu"].get<std::string>());
    for (const nlohmann::json& entry : (*result)["scenarios"]) {
      const auto scenarios = ReadStepScenarios(CONCERT_SCENARIOS "/steps.json",
                                               "^" + entry["name"].get<std::string>() + "$");
      ASSERT_TRUE(scenarios.ok()) << scenarios.status();
      EXPECT_NEAR(entry["bound_steps_per_s"], BoundStepsPerS(scenarios->at(0), memory), 0.01)
          << name << ", " << entry["name"];
      for (const auto& [mode, rates] : entry["client_throughput_per_s"].items()) {
        EXPECT_NEAR(entry["share_of_bound"][mode],
                    ShareOfBound(scenarios->at(0), rates.get<std::vector<double>>(), memory), 0.001)
            << name << ", " << entry["name"] << ", " << mode;
      }
    }
  }
  EXPECT_GT(files, 0);
}

TEST(StepScenarioTest, AChunkComesBehindItsContext) {
  const auto scenarios = ParseSteps(
      StepsFile(R"({"model": "m", "batch": 2, "context": [0, 9], "role": "prefill", "chunk": 8})"));
  ASSERT_EQ(scenarios.size(), 1u);
  const StepScenario::Client& client = scenarios[0].clients[0];
  EXPECT_THAT(client.lengths, ElementsAre(8, 17));
  EXPECT_EQ(client.rows(), 16u);
  EXPECT_EQ(ClientName(client), "m: 2 layers of 64, batch 2, context 0 to 9, chunk 8");
}

TEST(StepScenarioTest, TheBoundOfLongChunksIsThatOfTheirOperations) {
  // Two layers of two heads of 64; of a chunk of 4096 behind 100 a token attends to 101 to 4196.
  const double layer = 64 * 256 + 128 * 64 + 3 * 64 * 96 + 128;
  const double attended = 4096.0 * (101 + 4196) / 2;
  const auto scenarios = ParseSteps(
      StepsFile(R"({"model": "m", "batch": 1, "context": 100, "role": "prefill", "chunk": 4096})"));
  EXPECT_NEAR(BoundStepsPerS(scenarios[0], 4.2e12),
              790e12 / (2 * 4096 * (2 * layer + 64) + 2 * 4 * attended * 128), 1);
}

TEST(StepScenarioTest, MistakesAreNamed) {
  EXPECT_THAT(StepsErrorOf(R"({"model": "m", "batch": 1, "context": 1, "role": "train"})"),
              HasSubstr("role is \"train\""));
  EXPECT_THAT(StepsErrorOf(R"({"model": "m", "batch": 1, "context": 1, "role": "prefill"})"),
              HasSubstr("chunk is missing"));
  EXPECT_THAT(StepsErrorOf(R"({"model": "m", "batch": 1, "context": 1, "chunk": 8})"),
              HasSubstr("only role prefill"));
  EXPECT_THAT(StepsErrorOf(R"({"model": "m", "batch": 1, "context": 0})"), HasSubstr("context is"));
  EXPECT_THAT(
      StepsErrorOf(
          R"({"model": "m", "batch": 3, "context": 0, "role": "prefill", "chunk": 1000000})"),
      HasSubstr("chunk 1000000"));
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
  EXPECT_NEAR(BoundStepsPerS(*eight, 4.2e12), 8250, 50);
}

TEST(StepDataTest, EverySequenceHasPagesOfItsOwn) {
  const auto scenarios = ParseSteps(StepsFile(R"({"model": "m", "batch": 4, "context": [1, 50]})"));
  const StepData data(scenarios[0].clients[0], 0);
  std::set<uint64_t> slots;
  uint64_t tokens = 0;
  for (uint32_t sequence = 0; sequence < data.batch(); ++sequence) {
    for (uint32_t token = 0; token < data.client().lengths[sequence]; ++token, ++tokens) {
      slots.insert(data.SlotOf(sequence, token));
      EXPECT_LT(data.SlotOf(sequence, token), uint64_t{data.pages()} * StepData::kPageSize);
    }
  }
  EXPECT_EQ(slots.size(), tokens);
}

TEST(StepDataTest, EachNewTokenHasARow) {
  const auto scenarios = ParseSteps(StepsFile(
      R"({"model": "m", "batch": 2, "context": [20, 3], "role": "prefill", "chunk": 3})"));
  const StepData data(scenarios[0].clients[0], 0);
  EXPECT_THAT(data.positions(), ElementsAre(20, 21, 22, 3, 4, 5));
  EXPECT_THAT(data.lengths(), ElementsAre(23, 6));
  EXPECT_THAT(data.query_starts(), ElementsAre(0, 3, 6));
  EXPECT_THAT(data.last_rows(), ElementsAre(2, 5));
  EXPECT_EQ(data.slots()[4], static_cast<int32_t>(data.SlotOf(1, 4)));
  EXPECT_EQ(data.extent(StepTensor::kHidden).rows, 6u);
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
  // The second of two rows is expected.
  ExpectedStep right{.rows = {1}, .values = {3, 4}};
  constexpr StepExtent kExtent{.rows = 2, .columns = 2};
  const auto error = [&](std::vector<uint16_t> results) {
    return StepError(right, kExtent, results);
  };
  const std::vector<uint16_t> same = {0, 0, 0x4040, 0x4080};  // 3, 4
  EXPECT_EQ(error(same), 0);
  EXPECT_NEAR(error({0, 0, 0x4040, 0x4040}), 1 / 5.0, 1e-6);
  EXPECT_TRUE(std::isnan(error({0xFFFF, 0, 0x4040, 0x4080}))) << "poison in a row not checked";
  right.cache_error = 0.5;
  EXPECT_EQ(error(same), 0.5);
  right.cache_error = NAN;
  EXPECT_TRUE(std::isnan(error(same)));
}

TEST(StepReferenceTest, OfLongChunksTheBeginningAndASampleAreChecked) {
  const auto rows = [](const char* batch_and_chunk) {
    const auto scenarios =
        ParseSteps(StepsFile(std::string(R"({"model": "m", "context": 0, "role": "prefill", )") +
                             batch_and_chunk + "}"));
    return CheckedRows(StepData(scenarios[0].clients[0], 0));
  };
  EXPECT_EQ(rows(R"("batch": 2, "chunk": 32)").size(), 64u) << "all";
  const std::vector<uint32_t> one = rows(R"("batch": 1, "chunk": 2048)");
  ASSERT_EQ(one.size(), 64u);
  EXPECT_EQ(one[31], 31u);
  EXPECT_EQ(one[32], 31u + 2016 / 32);
  EXPECT_EQ(one.back(), 2047u);
  EXPECT_THAT(rows(R"("batch": 100, "chunk": 5)").size(), 200u);
  EXPECT_EQ(rows(R"("batch": 100, "chunk": 5)")[3], 9u) << "the last of the second sequence";
}

TEST(StepReferenceTest, FirstRowsDoNotDependOnTheCacheAndLaterOnesDo) {
  const auto scenarios = ParseSteps(
      StepsFile(R"({"model": "m", "batch": 1, "context": 5, "role": "prefill", "chunk": 70})"));
  const StepData data(scenarios[0].clients[0], 0);
  std::vector<LayerCache> cache;
  for (uint32_t layer = 0; layer < 2; ++layer)
    cache.push_back({data.Whole(StepTensor::kKeys, layer), data.Whole(StepTensor::kValues, layer)});
  const ExpectedStep expected = ReferenceStep(data, cache);
  EXPECT_GT(expected.cache_error, 1) << "the step has not written its keys and values";
  for (LayerCache& layer : cache) std::ranges::fill(layer.values, uint16_t{0x40E0});  // 7
  const ExpectedStep other = ReferenceStep(data, cache);
  const uint32_t columns = data.model().hidden;
  const auto same = [&](uint32_t row) {
    return std::equal(&expected.values[row * columns], &expected.values[row * columns] + columns,
                      &other.values[row * columns]);
  };
  EXPECT_TRUE(same(31));
  EXPECT_FALSE(same(63));
}

}  // namespace
}  // namespace concert::bench
