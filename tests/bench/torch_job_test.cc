// The protocol with PyTorch's process, of which a shell script plays the part.
#include "tests/bench/torch_job.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using ::testing::HasSubstr;

StepScenario TwoClients() {
  StepScenario::Client client;
  client.model = {
      .id = "m", .hidden = 64, .heads = 1, .kv_heads = 1, .head_dim = 64, .ffn = 96, .layers = 2};
  client.lengths = {5, 9};
  StepScenario::Client prefill = client;
  prefill.chunk = 5;
  client.priority = 1;
  return {.name = "pair", .clients = {client, prefill}};
}

// A "Python" that gives each order, which it logs, the next of `answers`, and then ends.
TenantOptions WithPython(const std::string& name, const std::string& answers) {
  TenantOptions options;
  options.board = testing::TempDir() + "/concert_torch_job_test_" + name;
  options.python = options.board + ".sh";
  options.clients = 2;
  std::filesystem::remove(options.board + "-torch-0");
  std::ofstream(options.python)
      << "#!/usr/bin/env bash\nwhile read -r answer; do\n"
         "  read -r order <&$3; echo \"$order\" >&2; echo \"$answer\" >&$3\n"
         "done <<'ANSWERS'\n"
      << answers << "ANSWERS\n";
  std::filesystem::permissions(options.python, std::filesystem::perms::owner_all);
  return options;
}

std::unique_ptr<TenantJob> JobOf(const TenantOptions& options) {
  return MakeTorchJob(options, TwoClients()).value();
}

std::string LogOf(const TenantOptions& options) {
  std::ifstream log(options.board + "-torch-0");
  return {std::istreambuf_iterator<char>(log), {}};
}

TEST(TorchJobTest, LapsFillTheSlotsOfTheirParticipants) {
  const TenantOptions options = WithPython(
      "laps",
      "{}\n{}\n{}\n{\"error\": 0.004}\n{\"runs\": [2.5], \"latencies_us\": [[10.5, 11]]}\n");
  {
    const std::unique_ptr<TenantJob> job = JobOf(options);
    ASSERT_TRUE(job->Prepare().ok());
    ASSERT_TRUE(job->Open().ok());
    const auto slots = std::make_unique<std::array<TenantSlot, 2>>();
    ASSERT_TRUE(job->RunFirst((*slots)[0]).ok());
    EXPECT_EQ(job->Check().value(), 0.004);
    const absl::Status ran =
        job->RunLap({.begin_ns = 7, .end_ns = 9, .participants = 0b10}, *slots, 0);
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ((*slots)[0].latency_count, 0u);
    EXPECT_EQ((*slots)[1].runs, 2.5);
    ASSERT_EQ((*slots)[1].latency_count, 2u);
    EXPECT_EQ((*slots)[1].latencies_us[0], 10.5f);
  }
  EXPECT_THAT(LogOf(options), HasSubstr(R"("lengths":[5,9])"));
  EXPECT_THAT(LogOf(options), HasSubstr(R"("chunk":5)"));
  EXPECT_THAT(LogOf(options), HasSubstr(R"("high_priority":true)"));
  EXPECT_THAT(LogOf(options), HasSubstr(R"("order":"lap","participants":[1])"));
}

TEST(TorchJobTest, WhatFailsSaysWhy) {
  const auto failed = JobOf(WithPython("failed", "{\"failed\": \"no memory\"}\n"))->Prepare();
  EXPECT_THAT(failed.message(), HasSubstr("no memory"));
  const auto gone = JobOf(WithPython("gone", ""))->Prepare();
  EXPECT_THAT(gone.message(), HasSubstr("has ended"));
  const auto job = JobOf(WithPython("wrong", "{}\n{\"error\": null}\n{\"error\": 0.5}\n"));
  ASSERT_TRUE(job->Prepare().ok());
  EXPECT_EQ(job->Check().status().code(), absl::StatusCode::kDataLoss) << "not a number";
  EXPECT_EQ(job->Check().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(TorchVersion("no-such-python").status().message(), HasSubstr("no-such-python"));
}

}  // namespace
}  // namespace concert::bench
