#include "daemon/admin/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/telemetry/records_for_test.h"

namespace concert::daemon {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(PlanTextTest, GroupSaysWhoAndWhatItGained) {
  PlanRecord plan = PlanOf(1, {3, 3, 7, 8, 8});
  plan.form = policies::Form::kGroup;
  plan.launch_count = 1;
  plan.sm_count = 124;
  EXPECT_THAT(
      PlanText(0, plan),
      StartsWith(
          "GPU 0: group of 5 GEMMs (sessions 3, 3, 7, 8, 8) in one launch on 124 SMs: predicted "
          "41.0 us, took 43.0 us; one after the other 96.0 us ("));
}

TEST(PlanTextTest, StreamsNamesLanesAndMixedKinds) {
  PlanRecord plan = PlanOf(1, {3, 7, 9});
  plan.ops[2].kind = CONCERT_OP_ALL_REDUCE;
  EXPECT_THAT(
      PlanText(1, plan),
      StartsWith("GPU 1: 2 GEMMs and 1 all_reduce (sessions 3, 7, 9) side by side on 3 lanes: "));
}

TEST(PlanTextTest, ACollectiveSaysHowItWent) {
  PlanRecord plan = PlanOf(1, {3});
  plan.ops[0].kind = CONCERT_OP_ALL_REDUCE;
  plan.ops[0].runs_on = policies::RunsOn::kLinks;
  plan.transport = policies::Transport::kPeer;
  plan.sm_count = 8;
  EXPECT_THAT(
      PlanText(0, plan),
      StartsWith("GPU 0: 1 all_reduce (session 3) by p2p on 8 SMs: predicted 41.0 us, took"));
  plan.transport = policies::Transport::kCopyEngine;
  plan.sm_count = 0;
  EXPECT_THAT(PlanText(0, plan), HasSubstr("(session 3) by ce: predicted"));
  plan.ops[0].kind = CONCERT_OP_BARRIER;
  EXPECT_THAT(PlanText(0, plan), HasSubstr("1 barrier (session 3): predicted"));
}

TEST(PlanTextTest, SingleHasNothingToCompareWith) {
  const std::string text = PlanText(0, PlanOf(1, {3}));
  EXPECT_THAT(text, StartsWith("GPU 0: 1 GEMM (session 3): predicted 41.0 us, took 43.0 us ("));
  EXPECT_THAT(text, Not(HasSubstr("one after the other")));
}

TEST(PlanTextTest, APlanWithoutATimeOfItsOwnDoesNotSayThatItTookNone) {
  PlanRecord plan = PlanOf(1, {3});
  for (const policies::Time none_ns : {0, 49}) {  // 49 ns: "0.0 us"
    plan.started_at = plan.finished_at - none_ns;
    const std::string text = PlanText(0, plan);
    EXPECT_THAT(text, HasSubstr("predicted 41.0 us, seen to end together with the one before ("));
    EXPECT_THAT(text, Not(HasSubstr("took")));
  }
}

TEST(PlanTextTest, MoreOpsThanListed) {
  PlanRecord plan = PlanOf(1, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  plan.op_count = 40;
  EXPECT_THAT(PlanText(0, plan),
              HasSubstr("40 ops (sessions 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ...)"));
}

}  // namespace
}  // namespace concert::daemon
