// A dispatcher driven by hand: what it records, what it tells others, whom it wakes, when it may
// sleep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "daemon/clock.h"
#include "daemon/sched/dispatcher.h"
#include "tests/bench/null_device.h"

namespace concert::daemon {
namespace {

constexpr uint32_t kSession = 1, kHandle = 1 << 8;
constexpr Time kSpinNs = DispatcherOptions().spin_ns;

// One session with one queue, which is the only rank of a communicator. The test is the client and
// the issuer of collectives.
class DispatcherTurnsTest : public testing::Test {
 protected:
  DispatcherTurnsTest() {
    const std::vector<int> gpus = {0};
    memory_ = SessionMemory::Create({.session = kSession, .gpus = gpus}).value();
    client_ = static_cast<char*>(mmap(nullptr, memory_->layout().client_bytes,
                                      PROT_READ | PROT_WRITE, MAP_SHARED, memory_->client_fd(), 0));
    DispatcherMessage session(DispatcherMessage::Type::kAddSession, kSession);
    session.link = {.session = kSession,
                    .ring = 0,
                    .event_fd = event_fd_,
                    .timelines_address = reinterpret_cast<Address>(memory_->timelines()),
                    .memory = memory_.get()};
    Tell(session);
    DispatcherMessage queue(DispatcherMessage::Type::kAddQueue, kSession);
    queue.queue = {.queue = 0, .priority = policies::Priority::kNormal, .next_ticket = 1};
    Tell(queue);
    DispatcherMessage member(DispatcherMessage::Type::kAddMembership, kSession);
    member.membership = {.handle = kHandle, .communicator = 1, .rank = 0, .ranks = 1};
    Tell(member);
    dispatcher_.Turn(0);  // so that it reads the ring
  }
  ~DispatcherTurnsTest() override {
    munmap(client_, memory_->layout().client_bytes);
    close(event_fd_);
  }

  void Tell(const DispatcherMessage& message) {
    ASSERT_TRUE(dispatcher_.mailbox().TryPush(message));
  }
  // The part of collective `sequence`.
  void SubmitBarrier(uint64_t sequence = 0, uint16_t flags = 0) {
    const concert_ring_layout& ring = memory_->layout().rings[0];
    auto* slots = reinterpret_cast<concert_descriptor*>(client_ + ring.descriptors_offset);
    concert_descriptor& slot = slots[submitted_++];
    slot = {};
    slot.sequence = slot.ticket = submitted_;
    slot.kind = CONCERT_OP_BARRIER;
    slot.flags = flags;
    slot.body.collective.communicator = kHandle;
    slot.body.collective.sequence = sequence;
    auto* control = reinterpret_cast<concert_submit_control*>(client_);
    std::atomic_ref<uint64_t>(control->tail).store(submitted_, std::memory_order_release);
  }

  const int event_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::unique_ptr<SessionMemory> memory_;
  char* client_ = nullptr;
  uint64_t submitted_ = 0;
  bench::NullDevice gpu_;
  ControlMailbox control_{1 << 10};
  IssuerMailbox issuer_{1 << 15};
  RecordRing records_{0};
  Dispatcher dispatcher_{
      {},       gpu_,    policies::FindPolicy("serial")->make({.device = gpu_.info().model}),
      control_, issuer_, records_};
};

TEST_F(DispatcherTurnsTest, ACollectiveSeenLaunchedAndEndedInOneTurnTookTime) {
  const Time turn_began = NowNs();
  SubmitBarrier();
  dispatcher_.Turn(turn_began);
  IssuerMessage offer;
  ASSERT_TRUE(issuer_.TryPop(offer));
  ASSERT_EQ(offer.type, IssuerMessage::Type::kPart);
  // It is launched and ends while the dispatcher, whose next turn has read the clock already, does
  // something else.
  DispatcherMessage launched(DispatcherMessage::Type::kPartLaunched);
  launched.part = {.op = offer.part.id, .failure = {}, .launched_at = NowNs()};
  Tell(launched);
  ASSERT_TRUE(gpu_.Signal(offer.part.lane, {&offer.part.signal, 1}).ok());
  dispatcher_.Turn(turn_began + 1);
  for (int i = 0; i < 4; ++i) dispatcher_.Turn(NowNs());  // idle ones hand over the records
  EXPECT_TRUE(dispatcher_.MaySleep(NowNs(), turn_began - kSpinNs));

  int plans = 0, ops = 0;
  records_.Drain([&](const auto& record) {
    if constexpr (std::is_same_v<std::decay_t<decltype(record)>, PlanRecord>) {
      ++plans;
      EXPECT_GT(record.finished_at, record.started_at);
    } else {
      ++ops;
      EXPECT_GE(record.launched_at, record.ready_at);
      EXPECT_GT(record.finished_at, record.launched_at);
      EXPECT_GT(record.gpu_us, 0);
    }
  });
  EXPECT_EQ(plans, 1);
  EXPECT_EQ(ops, 1);
}

TEST_F(DispatcherTurnsTest, ItHandsOverTheRecordsBeforeItSleeps) {
  SubmitBarrier();
  dispatcher_.Turn(0);
  IssuerMessage offer;
  ASSERT_TRUE(issuer_.TryPop(offer));
  DispatcherMessage failed(DispatcherMessage::Type::kPartFailed);
  failed.part.op = offer.part.id;
  failed.part.failure = {CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_LOST, {0}};
  Tell(failed);
  // An idle dispatcher that may not poll sleeps after its first turn without anything to do.
  constexpr Time kLater = 10 * kSpinNs;
  while (dispatcher_.Turn(0)) EXPECT_FALSE(dispatcher_.MaySleep(kLater, 0));
  while (!dispatcher_.MaySleep(kLater, 0)) dispatcher_.Turn(kLater);
  int ops = 0;
  records_.Drain([&](const auto& record) {
    ops += std::is_same_v<std::decay_t<decltype(record)>, OpRecord> ? 1 : 0;
  });
  EXPECT_EQ(ops, 1);
}

// Other ranks must not wait for a part that admission refuses. One that names no part that is due
// refuses none: what it leaves its op's arguments at is what another op had there.
TEST_F(DispatcherTurnsTest, ARefusedPartIsToldOfIfItCounts) {
  const auto refused = [&] {
    std::vector<uint64_t> sequences;
    IssuerMessage message;
    while (dispatcher_.Turn(NowNs())) {
    }
    while (issuer_.TryPop(message)) {
      EXPECT_EQ(message.type, IssuerMessage::Type::kRefuse);
      sequences.push_back(message.refused_sequence);
    }
    return sequences;
  };
  SubmitBarrier(/*sequence=*/0, /*flags=*/1);
  EXPECT_THAT(refused(), testing::ElementsAre(0));
  SubmitBarrier(/*sequence=*/99);
  EXPECT_THAT(refused(), testing::IsEmpty());
  SubmitBarrier(/*sequence=*/1, /*flags=*/1);
  EXPECT_THAT(refused(), testing::ElementsAre(1));
}

TEST_F(DispatcherTurnsTest, WhatIsGivenUpAtOnceIsLetGoInManyTurns) {
  constexpr uint32_t kPerTurn = PerTurn(Work::kRemovals), kBuffers = 2 * kPerTurn + 1;
  // A ring's ops of so many turns, behind which the buffers are.
  for (uint32_t i = 0; i < 3 * PerTurn(Work::kOpsOfRing); ++i) SubmitBarrier(i);
  for (uint32_t i = 0; i < kBuffers; ++i) {
    DispatcherMessage buffer(DispatcherMessage::Type::kAddBuffer, kSession);
    buffer.buffer = {.handle = i, .range = {.bytes = 256}};
    Tell(buffer);
    buffer.type = DispatcherMessage::Type::kReleaseBuffer;
    Tell(buffer);
  }
  uint32_t released = 0, turns = 0;
  while (released < kBuffers) {
    const bool goes_on = dispatcher_.Turn(0);
    ASSERT_LT(++turns, 100u);
    uint32_t of_turn = 0;
    for (ControlEvent event; control_.TryPop(event);)
      of_turn += event.type == ControlEvent::Type::kBufferReleased ? 1 : 0;
    EXPECT_LE(of_turn, kPerTurn);
    if (turns < 3) {
      EXPECT_EQ(of_turn, 0) << "ops that may use them were not admitted yet";
    }
    released += of_turn;
    EXPECT_TRUE(goes_on || released == kBuffers) << "it would sleep behind " << released;
  }
  EXPECT_EQ(released, kBuffers);
}

// Each of them takes microseconds that other clients wait for.
TEST_F(DispatcherTurnsTest, ACrowdOfSleepersIsWokenInManyTurns) {
  constexpr uint32_t kThreads = 150;
  auto* const word = reinterpret_cast<const uint32_t*>(&memory_->timeline(0));
  auto* const waiters = reinterpret_cast<uint32_t*>(client_ + memory_->layout().waiters_offset);
  std::atomic_ref<uint32_t>(*waiters).store(kThreads);
  std::array<std::atomic<pid_t>, kThreads> ids{};
  std::vector<std::thread> threads;
  for (std::atomic<pid_t>& id : ids) {
    threads.emplace_back([&id, word] {
      id = gettid();
      syscall(SYS_futex, word, FUTEX_WAIT, 0, nullptr, nullptr, 0);
    });
  }
  const auto sleeps = [](pid_t id) {
    std::ifstream file("/proc/self/task/" + std::to_string(id) + "/stat");
    std::string number, name, state;
    return id != 0 && file >> number >> name >> state && state == "S";
  };
  for (const std::atomic<pid_t>& id : ids) {
    while (!sleeps(id)) std::this_thread::yield();
  }

  SubmitBarrier(/*sequence=*/0, /*flags=*/1);  // refused, and so completed at once
  dispatcher_.Turn(NowNs());
  EXPECT_EQ(dispatcher_.gauges().wakes, 2u) << "one of it, and some of the crowd";
  while (dispatcher_.Turn(NowNs())) {
  }
  EXPECT_EQ(dispatcher_.gauges().wakes, 1u + (kThreads - 1 + 63) / 64);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(DispatcherTurnsTest, ItStaysAwakeAroundThePredictedEndOfWhatRuns) {
  constexpr Time kMicro = 1'000, kBegin = 5'000 * kMicro;
  SubmitBarrier();
  dispatcher_.Turn(kBegin);
  IssuerMessage offer;
  ASSERT_TRUE(issuer_.TryPop(offer));
  DispatcherMessage launched(DispatcherMessage::Type::kPartLaunched);
  launched.part = {.op = offer.part.id,
                   .failure = {},
                   .launched_at = kBegin,
                   .reservation = {.run_ns = 1'000 * kMicro}};
  Tell(launched);
  dispatcher_.Turn(kBegin);
  const auto may_sleep = [&](Time us) {
    return dispatcher_.MaySleep(kBegin + us * kMicro, /*idle_since=*/kBegin);
  };
  EXPECT_FALSE(may_sleep(190));  // spin_us is 200
  EXPECT_TRUE(may_sleep(210));
  EXPECT_TRUE(may_sleep(790));
  EXPECT_FALSE(may_sleep(810));
  EXPECT_FALSE(may_sleep(1'190));
  EXPECT_TRUE(may_sleep(1'210));
}

}  // namespace
}  // namespace concert::daemon
