// A session with queues on several GPUs, each of which has a ring of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>

#include "tests/support/raw_client.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{10};
constexpr uint64_t kBytes = 64;

uint32_t IndexOf(const Ticket& ticket) { return static_cast<uint32_t>(ticket.get().timeline); }

class SeveralGpusTest : public testing::Test {
 protected:
  TestDaemon daemon_{{.gpus = 2}};
  const Session session_ = daemon_.Connect();
  const Buffer from_ = session_.Allocate(kBytes).value(), to_ = session_.Allocate(kBytes).value();
};

// The daemon takes a free index for the next queue, whatever its GPU.
TEST_F(SeveralGpusTest, AnOutcomeIsThereWhenItsQueuesIndexIsAnothers) {
  Queue other = session_.CreateQueue({.gpu = 1}).value();
  Ticket bad;
  {
    Queue queue = session_.CreateQueue({.gpu = 0}).value();
    bad = queue.Copy({.src = from_, .dst = to_, .bytes = 2 * kBytes});
    // Which asks for no outcome of the other GPU's.
    const Ticket behind = other.Copy({.src = from_, .dst = to_, .bytes = kBytes}, {.waits = {bad}});
    ASSERT_TRUE(behind.Wait(kTimeout).ok());
  }
  std::deque<Queue> queues;
  ASSERT_TRUE(Eventually([&] {
    Queue& next = queues.emplace_back(session_.CreateQueue({.gpu = 1}).value());
    const Ticket ticket = next.Copy({.src = from_, .dst = to_, .bytes = kBytes});
    return IndexOf(ticket) == IndexOf(bad);
  }));
  EXPECT_THAT(bad.Wait(kTimeout).ToString(), HasSubstr("src needs 128 bytes"));
}

// What is waited for may wait for an op that a batch of another GPU holds.
class OpBehindABatchTest : public SeveralGpusTest {
 protected:
  Queue here_ = session_.CreateQueue({.gpu = 0}).value();
  Queue there_ = session_.CreateQueue({.gpu = 1}).value();
  const Batch batch_ = session_.BeginBatch(1).value();
  const Ticket held_ = there_.Copy({.src = from_, .dst = to_, .bytes = kBytes});
  const Ticket last_ = here_.Copy({.src = to_, .dst = from_, .bytes = kBytes}, {.waits = {held_}});
};

TEST_F(OpBehindABatchTest, WhoWaitsHandsTheBatchOver) {
  EXPECT_TRUE(last_.Wait(kTimeout).ok()) << last_.Wait(kTimeout).ToString();
}

TEST_F(OpBehindABatchTest, WhoPollsHandsTheBatchOver) {
  EXPECT_TRUE(Eventually([&] { return last_.Done(); }));
  EXPECT_TRUE(last_.Wait(kTimeout).ok()) << last_.Wait(kTimeout).ToString();
}

// A deadline that has passed is no wait without end.
TEST_F(SeveralGpusTest, ANegativeTimeoutOnlyLooks) {
  Queue queue = session_.CreateQueue({}).value();
  const UserTimeline never = session_.CreateUserTimeline().value();
  const Ticket ticket =
      queue.Copy({.src = from_, .dst = to_, .bytes = kBytes}, {.waits = {never.At(1)}});
  EXPECT_EQ(ticket.Wait(-kTimeout).code(), CONCERT_DEADLINE_EXCEEDED);
  never.Signal(1).Check();
  EXPECT_TRUE(ticket.Wait(kTimeout).ok());
}

}  // namespace
}  // namespace concert::test
