#include "daemon/telemetry/record_ring.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/unit/telemetry/records_for_test.h"

namespace concert::daemon {
namespace {

TEST(RecordRingTest, KeepsOrderTypeAndGpu) {
  RecordRing ring(3, 8);
  ASSERT_TRUE(ring.Push(GoodOp(7)));
  ASSERT_TRUE(ring.Push(PlanOf(9, {7, 8})));
  std::vector<Record> seen;
  EXPECT_EQ(ring.Drain([&](const Record& record) { seen.push_back(record); }), 2u);
  EXPECT_EQ(seen[0].type, Record::Type::kOp);
  EXPECT_EQ(seen[0].gpu, 3);
  EXPECT_EQ(seen[0].op.session, 7u);
  EXPECT_EQ(seen[1].type, Record::Type::kPlan);
  EXPECT_EQ(seen[1].gpu, 3);
  EXPECT_EQ(seen[1].plan.plan, 9u);
  EXPECT_EQ(seen[1].plan.ops[1].session, 8u);
  EXPECT_EQ(ring.Drain([](const Record&) {}), 0u);
}

TEST(RecordRingTest, FullRingDropsTheNewestAndCounts) {
  RecordRing ring(0, 3);  // rounded up
  ASSERT_EQ(ring.capacity(), 4u);
  for (uint32_t i = 1; i <= 6; ++i) EXPECT_EQ(ring.Push(GoodOp(i)), i <= 4) << i;
  EXPECT_EQ(ring.dropped(), 2u);
  std::vector<uint32_t> sessions;
  ring.Drain([&](const Record& record) { sessions.push_back(record.op.session); });
  EXPECT_EQ(sessions, (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_TRUE(ring.Push(GoodOp(7)));
  EXPECT_EQ(ring.dropped(), 2u);
}

// Two threads; run under TSan to prove the orderings. What arrives is in order, whole, and with
// what was dropped makes up all that was pushed.
TEST(RecordRingTest, ProducerAndConsumerInTwoThreads) {
  constexpr uint32_t kPushes = 50'000;
  RecordRing ring(0, 64);
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
    ring.Drain([&](const Record& record) {
      ++received;
      EXPECT_GT(record.op.session, last);
      EXPECT_EQ(record.op.flops, record.op.session * uint64_t{3});
      last = record.op.session;
    });
  }
  producer.join();
  EXPECT_GT(received, 0u);
  EXPECT_EQ(received + ring.dropped(), kPushes);
}

}  // namespace
}  // namespace concert::daemon
