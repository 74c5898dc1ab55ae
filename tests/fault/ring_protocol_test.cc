// Clients that break the rules of the ring lose their session, learn why, and harm nobody else.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>

#include "tests/fault/fault_fixture.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RingProtocolTest : public FaultTest {
 protected:
  void SetUp() override {
    client_ = std::make_unique<RawClient>(daemon_.socket());
    ASSERT_TRUE(client_->Hello());
    queue_ = client_->CreateQueue();
    buffer_ = client_->AllocateBuffer(4096);
    ASSERT_TRUE(client_->Push(MakeGemm(queue_, 1, buffer_)));
    ASSERT_TRUE(client_->WaitForTimeline(queue_, 1));
  }
  void TearDown() override {
    client_.reset();
    FaultTest::TearDown();
  }
  // Writes the slot at the tail as it is, and publishes it.
  void PublishRaw(const concert_descriptor& descriptor) {
    client_->slot(client_->tail()) = descriptor;
    client_->SetTail(client_->tail() + 1);
  }

  std::unique_ptr<RawClient> client_;
  uint32_t queue_ = 0, buffer_ = 0;
};

TEST_F(RingProtocolTest, ATailThatRunsBackwards) {
  client_->SetTail(0);
  EXPECT_THAT(client_->WaitForClosed(), HasSubstr("ring of GPU 0: tail is 0 while head is 1"));
  EXPECT_TRUE(client_->WaitForHangup());
}

TEST_F(RingProtocolTest, ATailBeyondTheCapacity) {
  client_->SetTail(client_->head() + client_->capacity() + 1);
  EXPECT_THAT(client_->WaitForClosed(), HasSubstr("tail is 258 while head is 1 and capacity 256"));
}

TEST_F(RingProtocolTest, ATailAtTheEndOfNumbers) {
  client_->SetTail(~uint64_t{0});
  EXPECT_THAT(client_->WaitForClosed(), HasSubstr("tail is 18446744073709551615"));
}

TEST_F(RingProtocolTest, ATornDescriptor) {
  PublishRaw({});
  EXPECT_THAT(client_->WaitForClosed(), HasSubstr("descriptor at position 1 carries sequence 0"));
}

TEST_F(RingProtocolTest, AStaleDescriptor) {
  // Position 1 + capacity shares the slot of position 1, whose old content must not run again.
  for (uint64_t ticket = 2; ticket <= client_->capacity() + 1; ++ticket) {
    ASSERT_TRUE(client_->Push(MakeGemm(queue_, ticket, buffer_)));
  }
  ASSERT_TRUE(client_->WaitForTimeline(queue_, client_->capacity() + 1));
  client_->SetTail(client_->tail() + 1);
  EXPECT_THAT(client_->WaitForClosed(), AllOf(HasSubstr("position 257 carries sequence 2"),
                                              HasSubstr("torn, stale or replayed")));
}

TEST_F(RingProtocolTest, AReplayedTicket) {
  concert_descriptor replayed = MakeGemm(queue_, 1, buffer_);
  replayed.sequence = 2;
  PublishRaw(replayed);
  EXPECT_THAT(client_->WaitForClosed(), HasSubstr("ticket is 1, but the next one is 2"));
}

TEST_F(RingProtocolTest, ATicketFromTheFuture) {
  ASSERT_TRUE(client_->Push(MakeGemm(queue_, 1'000'000, buffer_)));
  EXPECT_THAT(client_->WaitForClosed(), HasSubstr("ticket is 1000000, but the next one is 2"));
}

TEST_F(RingProtocolTest, AQueueThatIsNotThere) {
  for (const uint32_t queue : {queue_ + 1, 255u, 256u, ~0u}) {
    SCOPED_TRACE(queue);
    RawClient client(daemon_.socket());
    ASSERT_TRUE(client.Hello());
    ASSERT_TRUE(client.Push(MakeGemm(queue, 1, 1)));
    EXPECT_THAT(client.WaitForClosed(),
                HasSubstr("queue " + std::to_string(queue) + " is not a queue of this ring"));
  }
}

TEST_F(RingProtocolTest, ACompletionHeadBeyondTheTail) {
  client_->SetCompletionHead(1'000'000);
  // It is looked at when room for completions runs out.
  concert_descriptor bad = MakeGemm(queue_, 2, 0);
  for (; bad.ticket <= 2 * client_->capacity() && client_->Push(bad); ++bad.ticket) {
  }
  EXPECT_THAT(client_->WaitForClosed(), HasSubstr("ring of GPU 0"));
}

TEST_F(RingProtocolTest, CompletionsThatNobodyReadsHoldTheirRingAndNothingElse) {
  const uint32_t capacity = client_->capacity();
  for (uint64_t ticket = 2; ticket <= capacity + 1; ++ticket) {
    ASSERT_TRUE(client_->Push(MakeGemm(queue_, ticket, 0)));
  }
  ASSERT_TRUE(client_->WaitForTimeline(queue_, capacity + 1));
  ASSERT_TRUE(client_->Push(MakeGemm(queue_, capacity + 2, buffer_)));
  EXPECT_TRUE(healthy_->Progresses());
  EXPECT_EQ(client_->timeline(queue_), capacity + 1);
  // Reading one makes room for one.
  EXPECT_TRUE(client_->NextCompletion().has_value());
  EXPECT_TRUE(client_->WaitForTimeline(queue_, capacity + 2));
}

TEST_F(RingProtocolTest, ABlockingEventfdDoesNotStopTheDispatcher) {
  // The descriptor's flags are shared with the daemon. Ring and take the ring away again, so that a
  // dispatcher that reads would find nothing and block.
  ASSERT_EQ(fcntl(client_->event_fd(), F_SETFL, O_RDWR), 0);
  for (int i = 0; i < 20'000; ++i) {
    client_->Wake();
    uint64_t count;
    pollfd readable{.fd = client_->event_fd(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, 0) == 1) {
      ASSERT_GT(read(client_->event_fd(), &count, sizeof(count)), 0);
    }
  }
  EXPECT_TRUE(healthy_->Progresses());
}

// A thread of the client writes at random over everything it shares with the daemon while another
// submits. Whatever comes of that session, the daemon and the healthy client go on.
TEST_F(RingProtocolTest, AHostileThreadScribblesOverTheWholeRegion) {
  for (uint32_t round = 0; round < 12; ++round) {
    const uint32_t seed = test::Seed() + round;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RawClient client(daemon_.socket());
    ASSERT_TRUE(client.Hello());
    const uint32_t queue = client.CreateQueue(), buffer = client.AllocateBuffer(4096);
    std::atomic<bool> stop{false};
    std::thread scribbler([&, random = std::mt19937_64(seed)]() mutable {
      const std::span<char> region = client.client_region();
      // Even seeds leave the ring's two words alone, so that the session lives to see the rest.
      const size_t first = seed % 2 == 0 ? sizeof(concert_submit_control) : 0;
      for (int i = 0; i < 200'000 && !stop; ++i) {
        const size_t offset = first + random() % (region.size() - first - 8);
        auto* word = reinterpret_cast<uint64_t*>(region.data() + offset / 8 * 8);
        const uint64_t value = random() % 4 == 0 ? random() % 1024 : random();
        std::atomic_ref(*word).store(value, std::memory_order_relaxed);
        if (i % 64 == 0) client.Wake();
      }
    });
    const std::atomic_ref<uint32_t> state(const_cast<uint32_t&>(client.page().state));
    for (uint64_t ticket = 1; ticket <= 2'000 && state != CONCERT_SESSION_CLOSED; ++ticket) {
      if (client.tail() - client.head() >= client.capacity()) break;
      concert_descriptor descriptor = MakeGemm(queue, ticket, buffer);
      descriptor.sequence = client.tail() + 1;
      auto* words = reinterpret_cast<uint64_t*>(&client.slot(client.tail()));
      for (size_t i = 0; i < sizeof(descriptor) / 8; ++i) {
        std::atomic_ref(words[i]).store(reinterpret_cast<uint64_t*>(&descriptor)[i],
                                        std::memory_order_relaxed);
      }
      client.SetTail(client.tail() + 1);
    }
    EXPECT_TRUE(healthy_->Progresses());
    stop = true;
    scribbler.join();
  }
}

}  // namespace
}  // namespace concert::test
