// Suite "steps" end to end on the simulator.
#include "tests/bench/steps_suite.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/result_file.h"

namespace concert::bench {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kStepsFile[] = R"({"suite": "steps", "scenarios": [
  {"name": "ragged", "clients": [
     {"model": "t", "count": 2, "batch": 3, "context": [5, 40], "weights": "own"}],
   "models": [{"id": "t", "hidden": 96, "heads": 4, "kv_heads": 2, "head_dim": 64, "ffn": 160,
               "layers": 2, "vocab": 0}]},
  {"name": "tokens", "clients": [
     {"model": "v", "batch": 2, "context": 33, "weights": "shared", "priority": "high"},
     {"model": "v", "batch": 2, "context": 33, "weights": "shared", "priority": "low"}],
   "models": [{"id": "v", "hidden": 64, "heads": 1, "kv_heads": 1, "head_dim": 64, "ffn": 96,
               "layers": 1, "vocab": 200}]},
  {"name": "prefill", "clients": [
     {"model": "t", "batch": 2, "context": 5, "priority": "high"},
     {"model": "t", "batch": 1, "context": 0, "role": "prefill", "chunk": 70},
     {"model": "v", "batch": 2, "context": [0, 20], "role": "prefill", "chunk": 5}],
   "models": [{"id": "t", "hidden": 96, "heads": 4, "kv_heads": 2, "head_dim": 64, "ffn": 160,
               "layers": 2, "vocab": 0},
              {"id": "v", "hidden": 64, "heads": 1, "kv_heads": 1, "head_dim": 64, "ffn": 96,
               "layers": 1, "vocab": 200}]}]})";

json RunOnTheSimulator(const std::string& filter) {
  RunOptions options;
  options.device = "sim";
  options.rounds = 2;
  options.filter = filter;
  options.scenarios = testing::TempDir() + "/concert_steps_suite_test.json";
  std::ofstream(options.scenarios) << kStepsFile;
  json result = NewResult("steps");
  const absl::Status ran = RunStepsSuite(options, result);
  EXPECT_TRUE(ran.ok()) << ran;
  EXPECT_TRUE(ValidateResult(result).ok()) << ValidateResult(result);
  return result;
}

TEST(StepsSuiteTest, StepsRunAsProcessesAndAreChecked) {
  const json result = RunOnTheSimulator("ragged|tokens");
  ASSERT_EQ(result["scenarios"].size(), 2u);
  for (const json& scenario : result["scenarios"]) {
    for (const char* mode : {"concert", "ops"}) {
      SCOPED_TRACE(mode);
      EXPECT_GT(scenario["throughput_per_s"][mode].get<double>(), 0);
      ASSERT_EQ(scenario["latency_us"][mode].size(), 2u);
      EXPECT_GE(scenario["latency_us"][mode][1]["p99"], scenario["latency_us"][mode][1]["p50"]);
      EXPECT_EQ(scenario["solo_latency_us"][mode].size(), 2u);
      ASSERT_EQ(scenario["client_rel_errors"][mode].size(), 2u);
      EXPECT_GT(scenario["client_rel_errors"][mode][0].get<double>(), 0) << "bf16 is rounded";
    }
    EXPECT_LT(scenario["max_rel_error"].get<double>(), 1e-2);
    EXPECT_GT(scenario["bound_steps_per_s"].get<double>(), 0);
    EXPECT_TRUE(scenario["speedup_over"].contains("ops"));
    ASSERT_TRUE(scenario.contains("predicted_us")) << scenario;
    EXPECT_GT(scenario["predicted_us"].get<double>(), 0);
    EXPECT_GT(scenario["planned_us"].get<double>(), 0);
    EXPECT_TRUE(scenario.contains("prediction_error"));
    const json& programs = scenario["programs"];
    for (const char* time : {"registering_ms", "first_run_ms"}) {
      ASSERT_EQ(programs[time].size(), 2u) << programs;
      for (const json& client : programs[time]) EXPECT_GT(client.get<double>(), 0) << time;
    }
    EXPECT_GT(programs["arena_bytes"].get<uint64_t>(), 0u);
    EXPECT_GT(programs["slot_bytes"], programs["arena_bytes"]) << "slots share the arena";
  }
  const json &ragged = result["scenarios"][0], &tokens = result["scenarios"][1];
  EXPECT_EQ(ragged["client_names"][0], "t: 2 layers of 96, batch 3, context 5 to 40");
  EXPECT_NE(ragged["client_rel_errors"]["concert"][0], ragged["client_rel_errors"]["concert"][1])
      << "each client has data of its own";
  EXPECT_EQ(ragged["weights"], "own");
  EXPECT_EQ(tokens["weights"], "shared");
  EXPECT_THAT(tokens["weights_are"].get<std::string>(), HasSubstr("once, sealed, in concert"));
}

TEST(StepsSuiteTest, ChunksRunBesideDecodedTokens) {
  const json result = RunOnTheSimulator("prefill");
  ASSERT_EQ(result["scenarios"].size(), 1u) << result["summary"];
  const json& scenario = result["scenarios"][0];
  EXPECT_EQ(scenario["client_names"][0], "t: 2 layers of 96, batch 2, context 5, high");
  EXPECT_EQ(scenario["client_names"][1], "t: 2 layers of 96, batch 1, context 0, chunk 70");
  EXPECT_EQ(scenario["client_names"][2],
            "v: 1 layers of 64 and LM head, batch 2, context 0 to 20, chunk 5");
  for (const char* mode : {"concert", "ops"}) {
    SCOPED_TRACE(mode);
    for (int client = 0; client < 3; ++client) {
      EXPECT_GT(scenario["client_rel_errors"][mode][client].get<double>(), 0) << "bf16 is rounded";
      EXPECT_GT(scenario["client_throughput_per_s"][mode][client].get<double>(), 0);
      EXPECT_GT(scenario["solo_throughput_per_s"][mode][client].get<double>(), 0);
      EXPECT_GT(scenario["kept_of_alone"][mode][client].get<double>(), 0);
      EXPECT_GT(scenario["p99_over_alone"][mode][client].get<double>(), 0);
    }
  }
  EXPECT_LT(scenario["max_rel_error"].get<double>(), 1e-2);
}

TEST(StepsSuiteTest, WhatCannotBeMeasuredSaysWhy) {
  const json result = RunOnTheSimulator("tokens");
  ASSERT_EQ(result["header"]["left_out"].size(), 3u);
  EXPECT_EQ(result["header"]["left_out"][0]["name"], "time_sliced");
  EXPECT_THAT(result["header"]["left_out"][0]["why"].get<std::string>(), HasSubstr("simulator"));
}

}  // namespace
}  // namespace concert::bench
