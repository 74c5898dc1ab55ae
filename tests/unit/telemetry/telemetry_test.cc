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
