#include "daemon/telemetry/telemetry.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/telemetry/records_for_test.h"

namespace concert::daemon {
namespace {

class TelemetryTest : public testing::Test {
 protected:
  std::atomic<Time> now_{1'000'000'000};
  Telemetry telemetry_{[this] { return now_.load(); }};
};

TEST_F(TelemetryTest, SnapshotHoldsAllRingsAndPlansNewestFirst) {
  RecordRing* first = telemetry_.AddRing(0);
  RecordRing* second = telemetry_.AddRing(1);
  first->Push(GoodOp(1));
  first->Push(PlanOf(10, {1}));
  first->Push(PlanOf(11, {1}));
  second->Push(GoodOp(2));
  const auto snapshot = telemetry_.Snapshot();
  EXPECT_EQ(snapshot->taken_at, now_);
  EXPECT_EQ(snapshot->stats.total.op_count, 2u);
  ASSERT_EQ(snapshot->plans.size(), 2u);
  EXPECT_EQ(snapshot->plans[0].record.plan, 11u);
  EXPECT_EQ(snapshot->plans[1].record.plan, 10u);
}

TEST_F(TelemetryTest, SnapshotsAreSharedWhileYoungAndNeverChange) {
  RecordRing* ring = telemetry_.AddRing(0);
  const auto empty = telemetry_.Snapshot();
  ring->Push(GoodOp(1));
  EXPECT_EQ(telemetry_.Snapshot(), empty);
  now_ += Telemetry::kDefaultMaxAge + 1;
  const auto later = telemetry_.Snapshot();
  EXPECT_EQ(later->stats.total.op_count, 1u);
  EXPECT_EQ(empty->stats.total.op_count, 0u);
  EXPECT_NE(telemetry_.Snapshot(0), later);
}

TEST_F(TelemetryTest, OnlyTheLastPlansAreKept) {
  RecordRing* ring = telemetry_.AddRing(0);
  for (uint64_t i = 1; i <= Telemetry::kMaxPlans + 5; ++i) ring->Push(PlanOf(i, {1}));
  const auto snapshot = telemetry_.Snapshot();
  ASSERT_EQ(snapshot->plans.size(), Telemetry::kMaxPlans);
  EXPECT_EQ(snapshot->plans.front().record.plan, Telemetry::kMaxPlans + 5);
  EXPECT_EQ(snapshot->plans.back().record.plan, 6u);
}

TEST_F(TelemetryTest, DropsAreReported) {
  RecordRing* ring = telemetry_.AddRing(4, 2);
  for (int i = 0; i < 5; ++i) ring->Push(GoodOp(1));
  EXPECT_EQ(telemetry_.Snapshot()->stats.devices.at(4).dropped_record_count, 3u);
}

TEST_F(TelemetryTest, EndOfASessionComesAfterItsRecords) {
  RecordRing* ring = telemetry_.AddRing(0);
  telemetry_.BeginSession(6, 1000);
  ring->Push(GoodOp(6));
  telemetry_.EndSession(6);
  EXPECT_EQ(telemetry_.Snapshot()->stats.sessions.at(6).ended_at, now_);
  now_ += Stats::kKeepEnded;
  const auto later = telemetry_.Snapshot();
  EXPECT_FALSE(later->stats.sessions.contains(6));
  EXPECT_EQ(later->stats.departed.op_count, 1u);
}

TEST_F(TelemetryTest, ATraceHasWhatEndsWhileItLasts) {
  RecordRing* ring = telemetry_.AddRing(3);
  ring->Push(GoodOp(1));
  ASSERT_TRUE(telemetry_.BeginTrace());
  EXPECT_FALSE(telemetry_.BeginTrace());
  ring->Push(GoodOp(2));
  ring->Push(PlanOf(7, {2}));
  telemetry_.Snapshot(0);  // others may take the records from the ring
  ring->Push(GoodOp(4));
  const TraceBatch batch = telemetry_.TakeTrace();
  ASSERT_EQ(batch.ops.size(), 2u);
  EXPECT_EQ(batch.ops[0].gpu, 3);
  EXPECT_EQ(batch.ops[0].record.session, 2u);
  EXPECT_EQ(batch.ops[1].record.session, 4u);
  ASSERT_EQ(batch.plans.size(), 1u);
  EXPECT_EQ(batch.plans[0].record.plan, 7u);
  EXPECT_TRUE(telemetry_.TakeTrace().ops.empty());
  telemetry_.EndTrace();
  ring->Push(GoodOp(5));
  ASSERT_TRUE(telemetry_.BeginTrace());
  EXPECT_TRUE(telemetry_.TakeTrace().ops.empty());
}

TEST_F(TelemetryTest, ATraceThatIsNotReadIsBoundedAndCountsWhatItLost) {
  RecordRing* ring = telemetry_.AddRing(0, 1024);
  for (int i = 0; i < 1030; ++i) ring->Push(GoodOp(1));  // 6 lost before it begins
  ASSERT_TRUE(telemetry_.BeginTrace());
  for (size_t i = 0; i < Telemetry::kMaxTracedOps + 10; ++i) {
    ring->Push(GoodOp(1));
    if (i % 1000 == 0) telemetry_.Snapshot(0);
  }
  telemetry_.Snapshot(0);
  for (int i = 0; i < 1029; ++i) ring->Push(GoodOp(1));  // 5 that the ring has no room for
  const TraceBatch batch = telemetry_.TakeTrace();
  EXPECT_EQ(batch.ops.size(), Telemetry::kMaxTracedOps);
  EXPECT_EQ(batch.lost_count, 10u + 1024 + 5);
}

// The thread alone must empty the ring: pushes succeed again after it was full.
TEST_F(TelemetryTest, ThreadEmptiesRings) {
  RecordRing* ring = telemetry_.AddRing(0, 16);
  telemetry_.Start();
  uint64_t pushed = 0;
  while (pushed < 100) pushed += ring->Push(GoodOp(1)) ? 1 : 0;
  telemetry_.Stop();
  EXPECT_EQ(telemetry_.Snapshot(0)->stats.total.op_count, 100u);
}

TEST_F(TelemetryTest, ReadersAndThreadTogether) {
  RecordRing* ring = telemetry_.AddRing(0, 64);
  telemetry_.Start();
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) telemetry_.Snapshot(0);
  });
  uint64_t pushed = 0;
  for (int i = 0; i < 20'000; ++i) pushed += ring->Push(GoodOp(1)) ? 1 : 0;
  done = true;
  reader.join();
  telemetry_.Stop();
  const auto snapshot = telemetry_.Snapshot(0);
  EXPECT_EQ(snapshot->stats.total.op_count, pushed);
  EXPECT_EQ(snapshot->stats.devices.at(0).dropped_record_count, 20'000 - pushed);
}

}  // namespace
}  // namespace concert::daemon
