#include "daemon/telemetry/record_ring.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/unit/telemetry/records_for_test.h"

namespace concert::daemon {
namespace {

// What a ring holds, drained.
struct Drained {
  std::vector<OpRecord> ops;
  std::vector<PlanRecord> plans;
  bool ops_first = true;

  size_t From(RecordRing& ring) {
    return ring.Drain([this](const auto& record) { Take(record); });
  }

 private:
  void Take(const OpRecord& op) {
    ops_first &= plans.empty();
    ops.push_back(op);
  }
  void Take(const PlanRecord& plan) { plans.push_back(plan); }
};

TEST(RecordRingTest, GivesOpsThenPlansEachInTheirOrder) {
  RecordRing ring(3, 8);
  EXPECT_EQ(ring.gpu(), 3);
  ASSERT_TRUE(ring.Push(PlanOf(8, {6})));
  ASSERT_TRUE(ring.Push(GoodOp(7)));
  ASSERT_TRUE(ring.Push(PlanOf(9, {7, 8})));
  ASSERT_TRUE(ring.Push(GoodOp(8)));
  Drained drained;
  EXPECT_EQ(drained.From(ring), 4u);
  EXPECT_TRUE(drained.ops_first);
  ASSERT_EQ(drained.ops.size(), 2u);
  EXPECT_EQ(drained.ops[0].session, 7u);
  EXPECT_EQ(drained.ops[1].session, 8u);
  ASSERT_EQ(drained.plans.size(), 2u);
  EXPECT_EQ(drained.plans[0].plan, 8u);
  EXPECT_EQ(drained.plans[1].plan, 9u);
  EXPECT_EQ(drained.plans[1].ops[1].session, 8u);
  EXPECT_EQ(drained.From(ring), 0u);
}

TEST(RecordRingTest, FullRingDropsTheNewestAndCounts) {
  RecordRing ring(0, 3);  // rounded up to four ops, and one plan
  for (uint32_t i = 1; i <= 6; ++i) EXPECT_EQ(ring.Push(GoodOp(i)), i <= 4) << i;
  for (uint32_t i = 1; i <= 2; ++i) EXPECT_EQ(ring.Push(PlanOf(i, {1})), i <= 1) << i;
  EXPECT_EQ(ring.dropped(), 3u);
  Drained drained;
  EXPECT_EQ(drained.From(ring), 5u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(drained.ops.at(i).session, i + 1);
  EXPECT_EQ(drained.plans.at(0).plan, 1u);
  EXPECT_TRUE(ring.Push(GoodOp(7)));
  EXPECT_EQ(ring.dropped(), 3u);
}

// Two threads; run under TSan to prove the orderings. What arrives is in order, whole, and with
// what was dropped makes up all that was pushed.
TEST(RecordRingTest, ProducerAndConsumerInTwoThreads) {
  constexpr uint32_t kPushes = 50'000;
  RingOf<OpRecord> ring(64);
  std::atomic<bool> done{false};
  std::thread producer([&] {
    for (uint32_t i = 1; i <= kPushes; ++i) {
      OpRecord op = GoodOp(i);
      op.flops = i * uint64_t{3};
      ring.Push(op);
    }
    done.store(true, std::memory_order_release);
  });
  uint64_t received = 0;
  uint32_t last = 0;
  bool finished = false;
  while (!finished) {
    finished = done.load(std::memory_order_acquire);
    ring.Drain([&](const OpRecord& record) {
      ++received;
      EXPECT_GT(record.session, last);
      EXPECT_EQ(record.flops, record.session * uint64_t{3});
      last = record.session;
    });
  }
  producer.join();
  EXPECT_GT(received, 0u);
  EXPECT_EQ(received + ring.dropped(), kPushes);
}

}  // namespace
}  // namespace concert::daemon
