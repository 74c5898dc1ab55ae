#include "daemon/sched/ledger.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace concert::daemon {
namespace {

using policies::Form;
using policies::Lane;
using policies::Priority;
using policies::Time;

constexpr Time kMicro = 1'000;

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() : pool_(64), ledger_(device_, pool_) {}

  // A GEMM [16, 16] x [16, 16] that reads 1 KiB at `w` and writes 1 KiB at `d`.
  OpId Gemm(uint64_t w, uint64_t d) {
    const OpId id = pool_.Allocate();
    OpSlot& slot = pool_[id];
    slot.op.kind = CONCERT_OP_GEMM;
    slot.op.gemm = {.m = 16,
                    .n = 16,
                    .k = 16,
                    .batch = 1,
                    .a = 0x900000,
                    .w = w,
                    .d = d,
                    .lda = 16,
                    .ldw = 16,
                    .ldd = 16,
                    .alpha = 1,
                    .dtype = policies::Dtype::kFp32,
                    .d_dtype = policies::Dtype::kFp32};
    slot.op.work = {.m = 16, .n = 16, .k = 16, .batch = 1};
    slot.solo_us = 10;
    return id;
  }

  // One plan with one launch, predicted to take 10 us.
  kernels::LaunchRequest Launch(std::vector<OpId> ops, Lane lane, Time now, uint16_t order_mask = 0,
                                bool chained = true) {
    kernels::LaunchRequest launch{.planned = {.count = static_cast<uint16_t>(ops.size()),
                                              .form = Form::kGroup,
                                              .lane = lane,
                                              .predicted_us = 10},
                                  .order_mask = order_mask};
    policies::Plan plan;
    plan.predicted_us = plan.serial_us = 10;
    Ledger::OpenPlan open = ledger_.Open(plan, Priority::kNormal, now);
    ledger_.Launch(launch, ops, chained, open, now);
    ledger_.Close(plan, open);
    return launch;
  }

  policies::DeviceModel device_{.launch_us = 0, .launch_op_us = 0};
  OpPool pool_;
  Ledger ledger_;
};

TEST_F(LedgerTest, WeightsAreReadyWhenNothingInFlightWritesThem) {
  const OpId writer = Gemm(0x1000, 0x8000);
  Launch({writer}, 0, 0);
  EXPECT_FALSE(Launch({Gemm(0x8000, 0x10000)}, 0, 0).weights_ready);
  EXPECT_TRUE(Launch({Gemm(0x2000, 0x18000)}, 0, 0).weights_ready);
  EXPECT_FALSE(Launch({Gemm(0x2000, 0x20000)}, 0, 0, 0, /*chained=*/false).weights_ready);
  ledger_.Finish(writer, kMicro);
  EXPECT_TRUE(Launch({Gemm(0x8000, 0x28000)}, 0, kMicro).weights_ready);
}

TEST_F(LedgerTest, TheNextEndIsThatOfALaunchThatRuns) {
  constexpr Time kNever = std::numeric_limits<Time>::max();
  EXPECT_EQ(ledger_.NextEnd(0), kNever);
  const OpId first = Gemm(0x1000, 0x8000), beside = Gemm(0x1000, 0xa000);
  Launch({first}, 0, 0);
  Launch({Gemm(0x1000, 0x9000)}, 0, 0);  // waits for the first
  Launch({beside}, 1, 5 * kMicro);
  EXPECT_EQ(ledger_.NextEnd(0), 10 * kMicro);
  // One that is overdue does not hide another that is not.
  EXPECT_EQ(ledger_.NextEnd(10 * kMicro), 15 * kMicro);
  EXPECT_EQ(ledger_.NextEnd(15 * kMicro), kNever);
  ledger_.Finish(first, 17 * kMicro);
  EXPECT_EQ(ledger_.NextEnd(15 * kMicro), 27 * kMicro);
  ledger_.Finish(beside, 20 * kMicro);
  EXPECT_EQ(ledger_.NextEnd(0), 27 * kMicro);
}

TEST_F(LedgerTest, LaunchesOfALaneAndBehindOthersAddUp) {
  const OpId first = Gemm(0x1000, 0x8000), second = Gemm(0x1000, 0x9000),
             third = Gemm(0x1000, 0xa000);
  Launch({first}, 0, 0);
  Launch({second}, 0, 0);
  Launch({third}, 1, 0, /*order_mask=*/0b1);
  EXPECT_EQ(ledger_.EndOf(pool_[first], 0), 10 * kMicro);
  EXPECT_EQ(ledger_.EndOf(pool_[second], 0), 20 * kMicro);
  EXPECT_EQ(ledger_.EndOf(pool_[third], 0), 30 * kMicro);
  const Ledger::Backlog backlog = ledger_.BacklogOf(Priority::kNormal, 0);
  EXPECT_EQ(backlog.ns, 30 * kMicro);
  // Nothing of it outranks the high class.
  EXPECT_LE(ledger_.BacklogOf(Priority::kHigh, 0).ns, 0);
  // What ends early brings the rest forward.
  ledger_.Finish(first, 4 * kMicro);
  EXPECT_EQ(ledger_.EndOf(pool_[second], 4 * kMicro), 14 * kMicro);
}

TEST_F(LedgerTest, OnlyTheNewestOfALaneCanBeFollowedWithNothingInBetween) {
  const OpId first = Gemm(0x1000, 0x8000), second = Gemm(0x1000, 0x9000);
  Launch({first}, 0, 0);
  EXPECT_EQ(ledger_.LaneBehind(first), 0);
  Launch({second}, 0, 0);
  EXPECT_EQ(ledger_.LaneBehind(first), policies::kNoLane);
  EXPECT_EQ(ledger_.LaneBehind(second), 0);
  EXPECT_EQ(ledger_.PredecessorOn(0, first).launches_back, 2);
  EXPECT_EQ(ledger_.PredecessorOn(0, second).launches_back, 1);
  EXPECT_EQ(ledger_.PredecessorOn(1, second).launches_back, 0);
}

TEST_F(LedgerTest, PredecessorsAreForgottenWhenTheyAreTooFarBack) {
  const OpId first = Gemm(0x1000, 0x8000);
  Launch({Gemm(0x1000, 0x9000), first}, 0, 0);
  EXPECT_EQ(ledger_.PredecessorOn(0, first).op, 1);
  for (int i = 0; i < kernels::kMaxGroupPredecessors; ++i) Launch({Gemm(0x1000, 0xa000)}, 0, 0);
  EXPECT_EQ(ledger_.PredecessorOn(0, first).launches_back, 0);
}

// A part takes nothing until its ranks have met, and then its lane and its SMs.
TEST_F(LedgerTest, APartIsInFlightFromItsLaunchOn) {
  const OpId part = Gemm(0, 0x8000);
  ledger_.Offer(part, policies::kCollectiveLane, /*sms=*/8, 0);
  EXPECT_EQ(ledger_.StateOf(policies::kCollectiveLane, 0).in_flight, 0u);
  ledger_.LaunchPart(
      part, {.sms = 8, .run_ns = 50 * kMicro, .transport = policies::Transport::kPeer}, 5 * kMicro);
  EXPECT_EQ(ledger_.StateOf(policies::kCollectiveLane, 5 * kMicro).in_flight, 1u);
  EXPECT_EQ(ledger_.EndOf(pool_[part], 5 * kMicro), 55 * kMicro);
  EXPECT_EQ(pool_[part].flight.reserved_sms, 8);
  EXPECT_EQ(ledger_.LaneBehind(part), policies::kNoLane);
  EXPECT_EQ(ledger_.plans().collectives(), 1);
}

TEST_F(LedgerTest, OfACollectiveItIsKeptHowItWentAndWhatWasPredicted) {
  const OpId part = Gemm(0, 0x8000);
  pool_[part].op.work = {.runs_on = policies::RunsOn::kLinks};
  pool_[part].solo_us = 7;  // as the cost model has it while nobody knows how it will go
  ledger_.Offer(part, policies::kCollectiveLane, /*sms=*/4, 0);
  ledger_.LaunchPart(
      part, {.sms = 8, .run_ns = 50 * kMicro, .transport = policies::Transport::kPeer}, 5 * kMicro);
  ledger_.Finish(part, 65 * kMicro);
  ASSERT_EQ(ledger_.plans().plan_records().size(), 1u);
  const PlanRecord& record = ledger_.plans().plan_records().front();
  EXPECT_TRUE(record.is_collective());
  EXPECT_EQ(record.transport, policies::Transport::kPeer);
  EXPECT_EQ(record.sm_count, 8);
  EXPECT_FLOAT_EQ(record.predicted_us, 50);
  EXPECT_FLOAT_EQ(record.serial_us, 50);
  EXPECT_EQ(record.finished_at - record.started_at, 60 * kMicro);
}

TEST_F(LedgerTest, WhatIsWithdrawnLeavesNothingBehind) {
  const OpId op = Gemm(0x1000, 0x8000);
  Launch({op}, 0, 0);
  ledger_.Withdraw(op);
  EXPECT_EQ(ledger_.StateOf(0, 0).in_flight, 0u);
  EXPECT_EQ(ledger_.LaneBehind(op), policies::kNoLane);
  EXPECT_EQ(ledger_.plans().compute_plans(), 0);
  EXPECT_TRUE(ledger_.plans().op_records().empty());
  EXPECT_TRUE(Launch({Gemm(0x8000, 0x10000)}, 0, 0).weights_ready);
}

}  // namespace
}  // namespace concert::daemon
