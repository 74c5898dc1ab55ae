#include "tests/bench/model_overlap.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/bench/gpu_models.h"

namespace concert::bench {
namespace {

OverlapScenario Scenario(GemmShape gemm, int repeat, CollectiveKind kind, uint64_t mib) {
  return {.name = "test",
          .gemm = gemm,
          .repeat = repeat,
          .collective = {.kind = kind, .bytes = mib << 20, .ranks = 2}};
}

const policies::DeviceModel kGpu = GpuModelOf("h200");

double Us(const OverlapScenario& scenario, const RankContender& contender, bool gemms = true,
          bool collective = true) {
  return ModelOverlap(scenario, kGpu, contender, gemms, collective).value().us;
}

const RankContender kAuto = {.name = "concert", .policy = "auto"};
constexpr GemmShape kDecode = {.m = 64, .n = 8192, .k = 8192};
constexpr GemmShape kPrefill = {.m = 8192, .n = 8192, .k = 8192};

TEST(ModelOverlapTest, RunsTakeTheSameAgain) {
  const OverlapScenario scenario = Scenario(kDecode, 8, CollectiveKind::kAllReduce, 64);
  EXPECT_EQ(Us(scenario, kAuto), Us(scenario, kAuto));
}

// What memory bounds takes as much longer on a GPU as its memory is slower.
TEST(ModelOverlapTest, GpusDifferByTheirMemory) {
  const OverlapScenario decode = Scenario(kDecode, 40, CollectiveKind::kAllReduce, 64);
  const OverlapScenario prefill = Scenario(kPrefill, 1, CollectiveKind::kAllReduce, 64);
  const policies::DeviceModel h100 = GpuModelOf("h100");
  const auto ratio = [&](const OverlapScenario& scenario) {
    return ModelOverlap(scenario, h100, kAuto, true, false)->us /
           ModelOverlap(scenario, kGpu, kAuto, true, false)->us;
  };
  EXPECT_NEAR(ratio(decode), kGpu.hbm_bytes_per_s / h100.hbm_bytes_per_s, 0.1);
  EXPECT_NEAR(ratio(prefill), 1, 0.02);
}

TEST(ModelOverlapTest, TogetherTakesAtLeastTheLongerAndAtMostBoth) {
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kAllReduce,
                                    CollectiveKind::kAllToAll, CollectiveKind::kReduceScatter}) {
    const OverlapScenario scenario = Scenario(kPrefill, 1, kind, 256);
    const double gemms_us = Us(scenario, kAuto, true, false);
    const double collective_us = Us(scenario, kAuto, false, true);
    const double us = Us(scenario, kAuto);
    EXPECT_GE(us, std::max(gemms_us, collective_us)) << KindName(kind);
    EXPECT_LE(us, gemms_us + collective_us) << KindName(kind);
  }
}

TEST(ModelOverlapTest, ContendersTakeTheirTransportAndNoOther) {
  const OverlapScenario scenario = Scenario(kPrefill, 1, CollectiveKind::kAllReduce, 64);
  for (const C3Member& form : C3Forms()) {
    if (form.contender.transport.empty() || !Carries(form.contender, scenario.collective.kind))
      continue;
    const ModelledRun run = ModelOverlap(scenario, kGpu, form.contender, true, true).value();
    EXPECT_EQ(run.choice.transport, policies::FindTransport(form.contender.transport))
        << form.contender.name;
    EXPECT_LE(run.choice.sms, form.contender.sms) << form.contender.name;
  }
}

// A launch whose last blocks begin late, because a collective holds their SMs, is planned for that
// moment: those behind the collective have all SMs from the start.
TEST(ModelOverlapTest, BehindACollectiveGemmsAreAsFastAsBefore) {
  const OverlapScenario scenario = Scenario(kDecode, 40, CollectiveKind::kAllToAll, 64);
  const double alone_us = Us(scenario, kAuto, true, false);
  EXPECT_LT(Us(scenario, kAuto), 1.1 * alone_us);
}

// What GEMMs on all SMs hold is free when they end: the whole difference between a policy that
// leaves a collective SMs and one that does not.
TEST(ModelOverlapTest, ACollectiveWaitsForALargeGemmUnlessItIsLeftSms) {
  const OverlapScenario scenario = Scenario(kPrefill, 1, CollectiveKind::kAllReduce, 256);
  const RankContender split = {
      .name = "split", .policy = "static_split", .transport = "p2p", .sms = 12};
  const double gemm_us = Us(scenario, kAuto, true, false);
  EXPECT_GT(ModelOverlap(scenario, kGpu, split, true, true)->collective_us, gemm_us);
  EXPECT_LT(ModelOverlap(scenario, kGpu, kAuto, true, true)->collective_us, gemm_us);
}

}  // namespace
}  // namespace concert::bench
