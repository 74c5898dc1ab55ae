#include "daemon/telemetry/stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "proto/ring/messages.h"
#include "tests/unit/telemetry/records_for_test.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::Pair;

Stats StatsOf(std::initializer_list<uint32_t> sessions) {
  Stats stats;
  for (const uint32_t session : sessions) stats.BeginSession(session, 1000);
  return stats;
}

TEST(StatsTest, OpsCountPerSessionKindAndDevice) {
  Stats stats = StatsOf({1, 2});
  stats.Add(0, GoodOp(1, CONCERT_OP_GEMM));
  stats.Add(1, GoodOp(1, CONCERT_OP_ALL_REDUCE, 10, 40, 2));
  stats.Add(1, GoodOp(2, CONCERT_OP_GEMM));
  EXPECT_EQ(stats.total.op_count, 3u);
  EXPECT_EQ(stats.total.co_run_op_count, 1u);
  EXPECT_EQ(stats.total.flops, 3'000'000u);
  EXPECT_EQ(stats.total.bytes, 3 * 4096u);
  EXPECT_NEAR(stats.total.gpu_seconds, 60e-6, 1e-9);
  EXPECT_NEAR(stats.total.gained_seconds, 12e-6, 1e-9);  // of the one that had others beside it
  EXPECT_NEAR(stats.sessions.at(1).ops.gained_seconds, 12e-6, 1e-9);
  EXPECT_EQ(stats.sessions.at(2).ops.gained_seconds, 0);
  EXPECT_EQ(stats.devices.at(0).ops.op_count, 1u);
  EXPECT_EQ(stats.devices.at(1).ops.op_count, 2u);
  EXPECT_EQ(stats.kinds.at(CONCERT_OP_GEMM).op_count, 2u);
  EXPECT_EQ(stats.kinds.at(CONCERT_OP_ALL_REDUCE).op_count, 1u);
  EXPECT_EQ(stats.sessions.at(1).ops.op_count, 2u);
  EXPECT_EQ(stats.sessions.at(2).ops.op_count, 1u);
}

TEST(StatsTest, WaitIsFromReadyToStartedAndRunFromThereToFinished) {
  Stats stats;
  stats.Add(0, GoodOp(1, CONCERT_OP_GEMM, 10, 40));
  EXPECT_NEAR(stats.total.queue_wait.QuantileUs(0.5), 10, 0.32);
  EXPECT_NEAR(stats.total.run_time.QuantileUs(0.5), 40, 1.3);
  OpRecord never_ready = GoodOp(1, CONCERT_OP_GEMM, 10, 40);
  never_ready.ready_at = 0;  // then from admission, 100 us earlier
  Stats other;
  other.Add(0, never_ready);
  EXPECT_NEAR(other.total.queue_wait.QuantileUs(0.5), 110, 3.6);
}

TEST(StatsTest, FailedOpsCountByStatusAndLeaveTheRestAlone) {
  Stats stats;
  stats.Add(0, FailedOp(1, CONCERT_ABI_INVALID_ARGUMENT));
  stats.Add(0, FailedOp(1, CONCERT_ABI_CANCELLED));
  stats.Add(0, FailedOp(1, 999));
  EXPECT_EQ(stats.total.op_count, 3u);
  EXPECT_EQ(stats.total.failed_op_count, 3u);
  EXPECT_EQ(stats.total.failures[CONCERT_ABI_INVALID_ARGUMENT], 1u);
  EXPECT_EQ(stats.total.failures[OpStats::kStatusCount - 1], 1u);
  EXPECT_EQ(stats.total.flops, 0u);
  EXPECT_EQ(stats.total.queue_wait.count(), 0u);
}

TEST(StatsTest, PlansCountPerDeviceWithPredictedAndActualTime) {
  Stats stats;
  stats.Add(2, PlanOf(1, {3}));
  stats.Add(2, PlanOf(2, {3, 4}));
  const DeviceStats& device = stats.devices.at(2);
  EXPECT_EQ(device.plan_count, 2u);
  EXPECT_EQ(device.co_run_plan_count, 1u);
  EXPECT_NEAR(device.predicted_seconds, 82e-6, 1e-9);
  EXPECT_NEAR(device.actual_seconds, 86e-6, 1e-9);
  EXPECT_NEAR(device.serial_seconds, 192e-6, 1e-9);
}

TEST(StatsTest, PlannedSmsCountForAsLongAsThePlanRan) {
  constexpr double kRan = 43e-6;
  Stats stats;
  DeviceStats& gpu = stats.devices[0];
  gpu.sm_count = 100;
  double expected = 0;
  const auto add = [&](PlanRecord plan, double sms) {
    stats.Add(0, plan);
    expected += sms * kRan;
    EXPECT_NEAR(gpu.planned_sm_seconds, expected, 1e-9) << sms;
  };
  add(PlanOf(1, {3}), 100);  // may use all
  PlanRecord streams = PlanOf(2, {3, 4});
  streams.sm_count = 30;
  add(streams, 60);
  streams.sm_count = 80;
  add(streams, 100);  // there are no more
  PlanRecord group = streams;
  group.form = policies::Form::kGroup;
  add(group, 80);
  PlanRecord collective = PlanOf(3, {3});
  collective.ops[0].runs_on = policies::RunsOn::kLinks;
  add(collective, 0);
  PlanRecord copy = PlanOf(4, {3});
  copy.ops[0].runs_on = policies::RunsOn::kCopyEngine;
  add(copy, 0);
  const Stats before = stats;
  stats.Add(0, PlanOf(5, {3}));
  stats.Subtract(before);
  EXPECT_NEAR(gpu.planned_sm_seconds, 100 * kRan, 1e-9);
}

TEST(StatsTest, OpsCountByPriorityClass) {
  Stats stats = StatsOf({3});
  OpRecord high = GoodOp(3);
  high.priority = policies::Priority::kHigh;
  stats.Add(0, high);
  const Stats before = stats;
  stats.Add(0, GoodOp(3));
  stats.Add(0, high);
  EXPECT_EQ(stats.classes[1].op_count, 1u);
  EXPECT_EQ(stats.classes[2].op_count, 2u);
  EXPECT_EQ(stats.classes[2].queue_wait.count(), 2u);
  EXPECT_EQ(stats.sessions.at(3).classes[2].op_count, 2u);
  stats.Subtract(before);
  EXPECT_EQ(stats.classes[2].op_count, 1u);
  EXPECT_EQ(stats.sessions.at(3).classes[1].op_count, 1u);
  EXPECT_EQ(stats.sessions.at(3).classes[2].op_count, 1u);
  EXPECT_EQ(stats.sessions.at(3).classes[0].op_count, 0u);
}

TEST(StatsTest, OpsCountByFormAndPlansByDegree) {
  Stats stats;
  OpRecord grouped = GoodOp(1);
  grouped.form = policies::Form::kGroup;
  stats.Add(0, GoodOp(1));
  stats.Add(0, grouped);
  stats.Add(0, grouped);
  stats.Add(0, FailedOp(1, CONCERT_ABI_CANCELLED));
  EXPECT_THAT(stats.total.form_op_count, ElementsAre(1, 0, 2));
  stats.Add(0, PlanOf(1, {1}));
  stats.Add(0, PlanOf(2, {1, 2}));
  stats.Add(0, PlanOf(3, {1, 2, 3}));
  stats.Add(0, PlanOf(4, {1, 2, 3, 4}));
  stats.Add(0, PlanOf(5, {1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_THAT(stats.devices.at(0).plans_by_degree, ElementsAre(1, 1, 2, 0, 1));
  Stats delta = stats;
  delta.Add(0, grouped);
  delta.Add(0, PlanOf(6, {1, 2}));
  delta.Subtract(stats);
  EXPECT_THAT(delta.total.form_op_count, ElementsAre(0, 0, 1));
  EXPECT_THAT(delta.devices.at(0).plans_by_degree, ElementsAre(0, 1, 0, 0, 0));
}

TEST(StatsTest, CoRunnersAreCountedOncePerPlanInBothDirections) {
  Stats stats = StatsOf({3, 7, 9});
  stats.Add(0, PlanOf(1, {3, 7, 3, 7, 9}));
  stats.Add(0, PlanOf(2, {3, 9}));
  stats.Add(0, PlanOf(3, {5}));  // alone
  EXPECT_THAT(stats.sessions.at(3).co_runners.plans_by_session(),
              ElementsAre(Pair(3, 1), Pair(7, 1), Pair(9, 2)));
  EXPECT_THAT(stats.sessions.at(7).co_runners.plans_by_session(),
              ElementsAre(Pair(3, 1), Pair(7, 1), Pair(9, 1)));
  EXPECT_THAT(stats.sessions.at(9).co_runners.plans_by_session(),
              ElementsAre(Pair(3, 2), Pair(7, 1)));
}

TEST(StatsTest, ListOfCoRunnersIsBounded) {
  CoRunners co_runners;
  for (uint32_t session = 1; session <= 100; ++session) co_runners.Add(session);
  EXPECT_EQ(co_runners.plans_by_session().size(), CoRunners::kMaxListed);
  EXPECT_EQ(co_runners.plans_by_session().at(0), 100 - (CoRunners::kMaxListed - 1));
}

TEST(StatsTest, EndedSessionsAreKeptForAWhileThenFolded) {
  Stats stats = StatsOf({1, 2});
  stats.Add(0, GoodOp(1));
  stats.Add(0, GoodOp(2));
  stats.EndSession(1, 1000);
  stats.FoldEnded(1000 + Stats::kKeepEnded - 1);
  EXPECT_TRUE(stats.sessions.contains(1));
  stats.FoldEnded(1000 + Stats::kKeepEnded);
  EXPECT_FALSE(stats.sessions.contains(1));
  EXPECT_TRUE(stats.sessions.contains(2));
  EXPECT_EQ(stats.departed.op_count, 1u);
  EXPECT_EQ(stats.total.op_count, 2u);
}

TEST(StatsTest, UsersKeepTheOpsOfTheirSessions) {
  Stats stats;
  stats.BeginSession(1, 1000);
  stats.BeginSession(2, 1000);
  stats.BeginSession(3, 1001);
  for (const uint32_t session : {1, 2, 3}) stats.Add(0, GoodOp(session));
  stats.Add(1, GoodOp(1));
  stats.Add(0, FailedOp(3, CONCERT_ABI_CANCELLED));
  EXPECT_EQ(stats.sessions.at(1).gpus.at(1).op_count, 1u);
  const Stats::ByUser before = stats.Users();
  EXPECT_EQ(before.at({1000, 0}).op_count, 2u);
  EXPECT_EQ(before.at({1000, 1}).op_count, 1u);
  EXPECT_EQ(before.at({1001, 0}).failed_op_count, 1u);
  EXPECT_NEAR(before.at({1000, 0}).gpu_seconds, 40e-6, 1e-9);
  EXPECT_NEAR(before.at({1000, 0}).queue_wait_seconds, 20e-6, 1e-9);
  for (const uint32_t session : {1, 3}) stats.EndSession(session, 1000);
  stats.FoldEnded(1000 + Stats::kKeepEnded);
  ASSERT_EQ(stats.sessions.size(), 1u);
  const Stats::ByUser after = stats.Users();
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [user, ops] : before) EXPECT_EQ(after.at(user).op_count, ops.op_count);
  stats.Add(0, GoodOp(1));  // late: nobody knows any more whose it is
  EXPECT_EQ(stats.Users().at({Stats::kOtherUsers, 0}).op_count, 1u);
}

TEST(StatsTest, DepartedUsersAreBounded) {
  Stats stats;
  for (uint32_t i = 0; i < Stats::kMaxDepartedUsers + 100; ++i) {
    stats.BeginSession(i, i);
    stats.Add(0, GoodOp(i));
    stats.EndSession(i, 1);
    if (i % 100 == 0) stats.FoldEnded(1 + Stats::kKeepEnded);
  }
  stats.FoldEnded(1 + Stats::kKeepEnded);
  EXPECT_LE(stats.departed_users.size(), Stats::kMaxDepartedUsers + 1);
  EXPECT_EQ(stats.departed_users.at({Stats::kOtherUsers, 0}).op_count, 100u);
}

TEST(StatsTest, InterferenceIsWhatOpsRanLongerTogetherThanPredictedAlone) {
  Stats stats;
  stats.Add(0, GoodOp(1, CONCERT_OP_GEMM, 10, 40, 0));  // alone
  EXPECT_EQ(stats.total.interference_seconds, 0);
  stats.Add(0, GoodOp(1, CONCERT_OP_GEMM, 10, 40, 1));  // 32 us alone
  EXPECT_NEAR(stats.total.interference_seconds, 8e-6, 1e-9);
  stats.Add(0, GoodOp(1, CONCERT_OP_GEMM, 10, 30, 1));  // quicker: nothing is taken back
  EXPECT_NEAR(stats.total.interference_seconds, 8e-6, 1e-9);
}

TEST(StatsTest, SessionsAreBoundedAndNothingIsLost) {
  Stats stats;
  for (uint32_t session = 1; session <= Stats::kMaxSessions; ++session) {
    stats.BeginSession(session, 1000);
    OpRecord op = GoodOp(session);
    op.finished_at += session;
    stats.Add(0, op);
  }
  stats.EndSession(5, 1);
  stats.BeginSession(100'000, 1000);
  stats.Add(0, GoodOp(100'000));  // the ended one makes room
  EXPECT_FALSE(stats.sessions.contains(5));
  stats.BeginSession(100'001, 1000);
  stats.Add(0, GoodOp(100'001));  // then the one quiet for longest
  EXPECT_FALSE(stats.sessions.contains(100'000));
  EXPECT_TRUE(stats.sessions.contains(1));
  EXPECT_EQ(stats.sessions.size(), Stats::kMaxSessions);
  EXPECT_EQ(stats.departed.op_count, 2u);
}

TEST(StatsTest, KindsThatMeanNothingShareOneEntry) {
  ASSERT_STRNE(concert_op_kind_name(kMaxKind), "unknown");
  ASSERT_STREQ(concert_op_kind_name(kMaxKind + 1), "unknown");
  Stats stats;
  stats.Add(0, GoodOp(1, CONCERT_OP_GEMM));
  for (uint32_t kind = kMaxKind + 1; kind <= 0xffff; ++kind) {
    OpRecord op = FailedOp(1, CONCERT_ABI_INVALID_ARGUMENT);
    op.kind = static_cast<uint16_t>(kind);
    stats.Add(0, op);
  }
  EXPECT_EQ(stats.kinds.size(), 2u);
  EXPECT_EQ(stats.kinds.at(0).op_count, 0xffffu - kMaxKind);
  EXPECT_EQ(stats.kinds.at(CONCERT_OP_GEMM).op_count, 1u);
}

TEST(StatsTest, RecordsThatComeAfterTheirSessionsEndListItNoMore) {
  Stats stats = StatsOf({1, 2});
  stats.EndSession(1, 1000);
  stats.Add(0, GoodOp(1));
  EXPECT_EQ(stats.sessions.at(1).ended_at, 1000);
  stats.FoldEnded(1000 + Stats::kKeepEnded);
  stats.Add(0, GoodOp(1));
  stats.Add(0, PlanOf(1, {1, 2}));
  EXPECT_FALSE(stats.sessions.contains(1));
  EXPECT_EQ(stats.departed.op_count, 2u);
  EXPECT_EQ(stats.total.op_count, 2u);
  EXPECT_THAT(stats.sessions.at(2).co_runners.plans_by_session(), ElementsAre(Pair(1, 1)));
}

TEST(StatsTest, SubtractLeavesWhatWasAdded) {
  Stats earlier = StatsOf({1, 2});
  earlier.Add(0, GoodOp(1));
  earlier.Add(0, GoodOp(2, CONCERT_OP_COPY));
  earlier.Add(0, PlanOf(1, {1, 2}));
  Stats delta = earlier;
  delta.Add(0, GoodOp(1, CONCERT_OP_GEMM, 100, 400));
  delta.Add(0, PlanOf(2, {1, 3}));
  delta.Subtract(earlier);
  EXPECT_EQ(delta.total.op_count, 1u);
  EXPECT_NEAR(delta.total.run_time.QuantileUs(0.5), 400, 13);
  EXPECT_EQ(delta.devices.at(0).plan_count, 1u);
  EXPECT_EQ(delta.Users().at({1000, 0}).op_count, 1u);
  ASSERT_EQ(delta.sessions.size(), 1u);
  EXPECT_THAT(delta.sessions.at(1).co_runners.plans_by_session(), ElementsAre(Pair(3, 1)));
  EXPECT_TRUE(delta.kinds.contains(CONCERT_OP_GEMM));
  EXPECT_FALSE(delta.kinds.contains(CONCERT_OP_COPY));
}

}  // namespace
}  // namespace concert::daemon
