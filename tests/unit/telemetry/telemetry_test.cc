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

// What a trace has kept, in short.
struct Kept {
  std::vector<int> gpus;
  std::vector<uint32_t> sessions;  // of ops
  std::vector<uint64_t> plans;
};

Kept Keep(const Trace& trace) {
  Kept kept;
  trace.records.ForEach([&](uint8_t gpu, const auto& record) {
    kept.gpus.push_back(gpu);
    if constexpr (std::is_same_v<decltype(record), const OpRecord&>) {
      kept.sessions.push_back(record.session);
    } else {
      kept.plans.push_back(record.plan);
    }
    return true;
  });
  return kept;
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
  const Kept kept = Keep(telemetry_.EndTrace());
  EXPECT_EQ(kept.gpus, std::vector<int>(3, 3));
  EXPECT_EQ(kept.sessions, (std::vector<uint32_t>{2, 4}));
  EXPECT_EQ(kept.plans, std::vector<uint64_t>{7});
  ring->Push(GoodOp(5));
  ASSERT_TRUE(telemetry_.BeginTrace());
  EXPECT_TRUE(Keep(telemetry_.EndTrace()).sessions.empty());
}

TEST_F(TelemetryTest, ATraceKeepsAllThatAPlanLists) {
  RecordRing* ring = telemetry_.AddRing(0);
  ASSERT_TRUE(telemetry_.BeginTrace());
  PlanRecord plan = PlanOf(7, {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5});
  ++plan.op_count;  // one that it does not list
  ring->Push(plan);
  const Trace trace = telemetry_.EndTrace();
  trace.records.ForEach([&](uint8_t, const auto& record) {
    if constexpr (std::is_same_v<decltype(record), const PlanRecord&>) {
      EXPECT_EQ(record.op_count, PlanRecord::kMaxListed + 1);
      EXPECT_EQ(record.ops.back().session, 5u);
      EXPECT_EQ(record.ops.back().kind, plan.ops.back().kind);
    }
    return true;
  });
}

TEST_F(TelemetryTest, ATraceCountsWhatTheRingsLost) {
  RecordRing* ring = telemetry_.AddRing(0, 1024);
  for (int i = 0; i < 1030; ++i) ring->Push(GoodOp(1));  // 6 lost before it begins
  ASSERT_TRUE(telemetry_.BeginTrace());
  for (int i = 0; i < 1029; ++i) ring->Push(GoodOp(1));  // 5 that the ring has no room for
  const Trace trace = telemetry_.EndTrace();
  EXPECT_EQ(trace.lost_count, 5u);
}

TEST_F(TelemetryTest, ATraceIsBounded) {
  RecordRing* ring = telemetry_.AddRing(0);
  ASSERT_TRUE(telemetry_.BeginTrace());
  size_t pushed = 0;
  while (!telemetry_.TraceIsFull()) {
    ASSERT_TRUE(ring->Push(GoodOp(1)));
    if (++pushed % 1000 == 0) telemetry_.Snapshot(0);
  }
  for (int i = 0; i < 1000; ++i) ring->Push(GoodOp(2));
  const Kept kept = Keep(telemetry_.EndTrace());
  EXPECT_LE(kept.sessions.size(), pushed);
  const size_t bytes = Telemetry::kMaxTraceChunks * TraceBuffer::kChunkBytes;
  EXPECT_GT(kept.sessions.size(), bytes / (sizeof(OpRecord) + 16));
  EXPECT_EQ(kept.sessions.back(), 1u);
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
