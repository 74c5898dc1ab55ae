#include "tests/bench/graph_launches.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/model_rounds.h"

namespace concert::bench {
namespace {

using policies::Degree;
using Form = LocalGpu::Form;

constexpr int kSmCount = 132;
constexpr Form kForms[] = {Form::kSerial,       Form::kSerialTuned, Form::kStreams,
                           Form::kStreamsTuned, Form::kStreamsWide, Form::kGoldyloc};

GemmScenario Scenario(std::vector<GemmShape> gemms) {
  return {.name = "x", .group = "", .gemms = std::move(gemms), .unsupported = ""};
}

std::vector<GraphLaunch> Launches(Form form, const GemmWorkload& workload) {
  const auto launches = LaunchesOf(form, workload, kSmCount);
  EXPECT_TRUE(launches.ok()) << launches.status();
  return launches.ok() ? *launches : std::vector<GraphLaunch>();
}

std::set<std::optional<Degree>> KernelsOf(const std::vector<GraphLaunch>& launches) {
  std::set<std::optional<Degree>> kernels;
  for (const GraphLaunch& launch : launches) kernels.insert(launch.tuned_for);
  return kernels;
}

TEST(GraphLaunchesTest, EveryFormComputesEveryGemmOfARoundOnce) {
  for (const std::vector<GemmShape>& gemms : {
           std::vector<GemmShape>(3, {16, 2048, 1024}),
           {{4096, 4096, 4096}, {16, 512, 512}, {64, 1024, 8192, Dtype::kFp8E4m3}},
       }) {
    const GemmScenario scenario = Scenario(gemms);
    const GemmWorkload workload(scenario, /*seed=*/1);
    for (const Form form : kForms) {
      const std::vector<GraphLaunch> launches = Launches(form, workload);
      std::set<std::pair<int, int>> seen;
      for (const GraphLaunch& launch : launches) {
        EXPECT_TRUE(seen.emplace(launch.batch, launch.gemm).second);
        EXPECT_GE(launch.batch, 0);
        EXPECT_LT(launch.batch, workload.batches_per_round());
      }
      EXPECT_EQ(launches.size(), size_t(workload.batches_per_round()) * gemms.size());
    }
  }
}

TEST(GraphLaunchesTest, StreamsAndKernelsAreThoseOfTheForm) {
  const GemmScenario scenario = Scenario(std::vector<GemmShape>(3, {16, 2048, 1024}));
  const GemmWorkload workload(scenario, 1);
  const std::optional<Degree> first;
  const std::map<Form, std::pair<int, std::optional<Degree>>> expected = {
      {Form::kSerial, {1, first}},
      {Form::kSerialTuned, {1, Degree::kSolo}},
      {Form::kStreams, {3, first}},
      {Form::kStreamsTuned, {3, Degree::kFour}},
      {Form::kStreamsWide, {12, first}}};
  for (const auto& [form, what] : expected) {
    const std::vector<GraphLaunch> launches = Launches(form, workload);
    EXPECT_EQ(StreamCount(launches), what.first);
    EXPECT_THAT(KernelsOf(launches), testing::ElementsAre(what.second));
  }
  const std::vector<GraphLaunch> batch = LaunchesOfBatch(workload);
  EXPECT_EQ(batch.size(), 3u);
  EXPECT_EQ(StreamCount(batch), 3);
  EXPECT_THAT(KernelsOf(batch), testing::ElementsAre(std::optional(Degree::kFour)));
}

TEST(GraphLaunchesTest, GoldylocHasTheLanesAndDegreesOfItsPlans) {
  const GemmScenario scenario = Scenario(std::vector<GemmShape>(8, {16, 2048, 1024}));
  const GemmWorkload workload(scenario, 1);
  const std::vector<GraphLaunch> launches = Launches(Form::kGoldyloc, workload);
  // Small GEMMs, 32 of them ready at a time: together pays, on no more lanes than the policy has.
  EXPECT_GT(StreamCount(launches), 1);
  EXPECT_LE(StreamCount(launches), policies::kNormalLaneCount);
  for (const std::optional<Degree>& degree : KernelsOf(launches)) {
    ASSERT_TRUE(degree.has_value());
    EXPECT_LE(CountOf(*degree), policies::kNormalLaneCount);
  }
  EXPECT_TRUE(std::any_of(launches.begin(), launches.end(), [](const GraphLaunch& launch) {
    return *launch.tuned_for > Degree::kSolo;
  }));
}

TEST(GraphLaunchesTest, RoundsFollowThePolicy) {
  const GemmScenario scenario = Scenario(std::vector<GemmShape>(4, {16, 2048, 1024}));
  const GemmWorkload workload(scenario, 1);
  const auto serial = LaunchesOfRound("serial", workload, kSmCount);
  ASSERT_TRUE(serial.ok()) << serial.status();
  for (const RoundLaunch& launch : *serial) {
    EXPECT_EQ(launch.lane, serial->front().lane);
    EXPECT_EQ(launch.degree, Degree::kSolo);
  }
  const auto streams = LaunchesOfRound("streams", workload, kSmCount);
  ASSERT_TRUE(streams.ok()) << streams.status();
  std::set<policies::Lane> lanes;
  for (const RoundLaunch& launch : *streams) lanes.insert(launch.lane);
  EXPECT_GE(lanes.size(), 4u);
  EXPECT_TRUE(absl::IsInvalidArgument(LaunchesOfRound("auto", workload, kSmCount).status()))
      << "groups are no launches of one GEMM";
}

TEST(GraphLaunchesTest, ABatchBeyondTheModelHasNoGoldyloc) {
  const GemmScenario scenario = Scenario({{1, 32768, 32768}});  // W has 2 GiB
  const GemmWorkload workload(scenario, 1);
  EXPECT_TRUE(absl::IsNotFound(LaunchesOf(Form::kGoldyloc, workload, kSmCount).status()));
}

}  // namespace
}  // namespace concert::bench
