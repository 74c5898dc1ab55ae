#include "daemon/sched/mailbox.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>
#include <vector>

#include "daemon/sched/outbox.h"

namespace concert::daemon {
namespace {

struct Message {
  int producer;
  int number;
};

TEST(MailboxTest, RefusesWhenFullAndGoesOnWhenEmptied) {
  Mailbox<Message> mailbox(4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(mailbox.TryPush({0, i}));
  EXPECT_FALSE(mailbox.TryPush({0, 4}));
  Message message;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(mailbox.TryPop(message));
    EXPECT_EQ(message.number, i);
  }
  EXPECT_FALSE(mailbox.TryPop(message));
  EXPECT_TRUE(mailbox.TryPush({0, 5}));
}

TEST(OutboxTest, WhatHasNoRoomIsSentLaterAndInOrder) {
  Mailbox<Message> mailbox(4);
  Outbox<Message> outbox(mailbox, 2);  // two cells are somebody else's
  for (int i = 0; i < 5; ++i) outbox.Push({0, i});
  EXPECT_EQ(outbox.late(), 3u);
  EXPECT_FALSE(outbox.Send());
  EXPECT_TRUE(mailbox.TryPush({1, 0}));
  Message message;
  ASSERT_TRUE(mailbox.TryPop(message));
  ASSERT_TRUE(mailbox.TryPop(message));
  EXPECT_EQ(message.number, 1);
  EXPECT_FALSE(outbox.TryPush({0, 5})) << "it would overtake";
  EXPECT_TRUE(outbox.Send());
  EXPECT_EQ(outbox.late(), 2u);
  ASSERT_TRUE(mailbox.TryPop(message));
  EXPECT_EQ(message.producer, 1);
  ASSERT_TRUE(mailbox.TryPop(message));
  EXPECT_EQ(message.number, 2);
}

// Every message of every producer arrives once and in its producer's order, with a consumer that
// sleeps whenever it finds nothing: a lost wake-up would end in the poll's time limit.
TEST(MailboxTest, ManyProducersOneSleepingConsumer) {
  constexpr int kProducers = 3, kEach = 20'000;
  Mailbox<Message> mailbox(64);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&mailbox, p] {
      for (int i = 0; i < kEach; ++i) {
        while (!mailbox.TryPush({p, i})) std::this_thread::yield();
      }
    });
  }
  std::vector<int> next(kProducers);
  int received = 0;
  bool lost = false;
  while (received < kProducers * kEach && !lost) {
    Message message;
    if (mailbox.TryPop(message)) {
      EXPECT_EQ(message.number, next[message.producer]++);
      ++received;
      continue;
    }
    mailbox.PrepareSleep();
    if (mailbox.empty()) {
      pollfd wait{.fd = mailbox.wake_fd(), .events = POLLIN, .revents = 0};
      lost = poll(&wait, 1, 20'000) == 0;
    }
    mailbox.FinishSleep();
  }
  EXPECT_FALSE(lost);
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(received, kProducers * kEach);
}

TEST(MailboxTest, AQuietMessageIsThereWithoutWakingAnybody) {
  Mailbox<int> mailbox(4);
  const auto rung = [&mailbox] {
    pollfd wait{.fd = mailbox.wake_fd(), .events = POLLIN, .revents = 0};
    return poll(&wait, 1, 0) > 0;
  };
  mailbox.PrepareSleep();
  ASSERT_TRUE(mailbox.TryPushQuietly(1));
  EXPECT_FALSE(rung());
  EXPECT_FALSE(mailbox.empty());
  ASSERT_TRUE(mailbox.TryPush(2));
  EXPECT_TRUE(rung());
  mailbox.FinishSleep();
  int message = 0;
  for (const int pushed : {1, 2}) {
    ASSERT_TRUE(mailbox.TryPop(message));
    EXPECT_EQ(message, pushed);
  }
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(mailbox.TryPushQuietly(i));
  EXPECT_FALSE(mailbox.TryPushQuietly(4));
}

TEST(MailboxTest, KnowsWhetherThereIsRoom) {
  Mailbox<Message> mailbox(8);
  for (int lap = 0; lap < 3; ++lap) {
    EXPECT_TRUE(mailbox.HasRoom(8));
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(mailbox.TryPush({0, i}));
    EXPECT_TRUE(mailbox.HasRoom(3));
    EXPECT_FALSE(mailbox.HasRoom(4));
    Message message;
    while (mailbox.TryPop(message)) {
    }
  }
}

}  // namespace
}  // namespace concert::daemon
