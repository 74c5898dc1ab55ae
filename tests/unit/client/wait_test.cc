// Waiting: polling, the futex protocol, outcomes and sentences, timeouts, a daemon that goes away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "concert/concert.hpp"
#include "tests/support/fake_daemon.h"

namespace concert {
namespace {

using std::chrono::milliseconds;
using test::FakeDaemon;
using testing::HasSubstr;

class WaitTest : public testing::Test {
 protected:
  Ticket Submit() { return queue_.Copy({.bytes = 8}); }

  FakeDaemon daemon_{FakeDaemon::Options{.capacity = 2048, .completion_capacity = 2048}};
  Session session_ =
      Session::Connect({.socket_path = daemon_.path(), .fallback = Fallback::kNone}).value();
  Queue queue_ = session_.CreateQueue().value();
};

TEST_F(WaitTest, PollFollowsTheTimeline) {
  const Ticket first = Submit(), second = Submit();
  EXPECT_FALSE(first.Done());
  daemon_.Reach(0, 1);
  EXPECT_TRUE(first.Done());
  EXPECT_TRUE(first.Wait().ok());
  EXPECT_FALSE(second.Done());
}

TEST_F(WaitTest, SleepsUntilTheDaemonWakesIt) {
  const Ticket ticket = Submit();
  std::thread dispatcher([&] {
    daemon_.AwaitSleeper(0);  // the client really is past its spinning
    daemon_.Reach(0, 1);
  });
  EXPECT_TRUE(ticket.Wait().ok());
  dispatcher.join();
}

TEST_F(WaitTest, AWakeUpForAnEarlierOpIsNotTheEnd) {
  Submit().submit_status().Check();
  const Ticket second = Submit();
  std::thread dispatcher([&] {
    daemon_.AwaitSleeper(0);
    daemon_.Reach(0, 1);
    daemon_.AwaitSleeper(0);
    daemon_.Reach(0, 2);
  });
  EXPECT_TRUE(second.Wait().ok());
  dispatcher.join();
}

TEST_F(WaitTest, TimeoutsNameTheOpAndTheQueue) {
  Submit().submit_status().Check();
  const Ticket second = Submit();
  daemon_.Reach(0, 1);
  const Status status = second.Wait(milliseconds(5));
  EXPECT_EQ(status.code(), CONCERT_DEADLINE_EXCEEDED);
  EXPECT_EQ(status.message(),
            "op 2 of queue 0 on GPU 0 did not end within 5.000 ms; the last that has is op 1");
  EXPECT_FALSE(second.Done());
  EXPECT_EQ(second.Wait(milliseconds(0)).code(), CONCERT_DEADLINE_EXCEEDED);
}

TEST_F(WaitTest, TimeoutsNameTheUserTimeline) {
  const UserTimeline first = session_.CreateUserTimeline().value();
  const UserTimeline second = session_.CreateUserTimeline().value();
  second.Signal(2).Check();
  EXPECT_EQ(second.At(5).Wait(milliseconds(1)).message(),
            "user timeline 1 did not reach 5 within 1.000 ms; it stands at 2");
}

TEST_F(WaitTest, SentencesUseTheNamesThatTheClientGave) {
  const Communicator tp = session_.Join({.name = "tp", .ranks = 2}).value();
  const uint64_t joined = 1, own = session_.id(), other = own + 1;
  const auto sentence = [&](uint64_t ticket, concert_message message, std::vector<uint64_t> args) {
    const Ticket op = Submit();
    daemon_.Fail(0, ticket, CONCERT_ABI_DEADLINE_EXCEEDED, message, args);
    return op.Wait().message();
  };
  EXPECT_EQ(sentence(1, CONCERT_MESSAGE_RANK_MISSING, {1, joined, 3, 400}),
            "rank 1 of communicator 'tp' did not submit op 3 within 400 ms");
  EXPECT_EQ(sentence(2, CONCERT_MESSAGE_RANK_LEFT, {1, joined + 1}), "rank 1 left communicator 2");
  EXPECT_EQ(sentence(3, CONCERT_MESSAGE_WAIT_TIMEOUT, {60000, 4, own, 3, 2}),
            "waited 60000 ms for queue 4 of this session to reach 3; it stood at 2");
  EXPECT_EQ(
      sentence(4, CONCERT_MESSAGE_WAIT_TIMEOUT, {60000, CONCERT_TIMELINE_USER | 1, other, 3, 2}),
      "waited 60000 ms for user timeline 1 of session " + std::to_string(other) +
          " to reach 3; it stood at 2");
}

TEST_F(WaitTest, AFailedOpTellsItsSentenceAndTheOthersSucceed) {
  const Ticket first = Submit(), second = Submit(), third = Submit();
  daemon_.Reach(0, 1);
  daemon_.Fail(0, 2, CONCERT_ABI_INVALID_ARGUMENT, CONCERT_MESSAGE_FIELD_RANGE,
               {CONCERT_FIELD_M, 0, 1, 1048576});
  daemon_.Reach(0, 3);
  const Status status = second.Wait();
  EXPECT_EQ(status.code(), CONCERT_INVALID_ARGUMENT);
  EXPECT_EQ(status.message(), "m is 0; it must be between 1 and 1048576");
  EXPECT_EQ(second.Wait().message(), status.message()) << "it can be asked again";
  EXPECT_TRUE(first.Wait().ok());
  EXPECT_TRUE(third.Wait().ok());
  EXPECT_EQ(daemon_.completion_head(), 1u);
}

TEST_F(WaitTest, PollTellsAnOpsDeadlineFromItsOwn) {
  const Ticket ticket = Submit();
  daemon_.Fail(0, 1, CONCERT_ABI_DEADLINE_EXCEEDED, CONCERT_MESSAGE_RANK_MISSING, {1, 2, 3, 400});
  int done = 0;
  concert_error error;
  EXPECT_EQ(concert_poll(session_.get(), ticket.get(), &done, &error), CONCERT_DEADLINE_EXCEEDED);
  EXPECT_EQ(done, 1);
  EXPECT_STREQ(error.message, "rank 1 of communicator 2 did not submit op 3 within 400 ms");
}

TEST_F(WaitTest, ForgottenFailuresAreNeverSuccesses) {
  constexpr uint64_t kKept = 1024;
  Ticket first = Submit();
  for (uint64_t i = 2; i <= kKept + 1; ++i) Submit().submit_status().Check();
  for (uint64_t i = 1; i <= kKept + 1; ++i) {
    daemon_.Fail(0, i, CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_DRAINING, {});
  }
  EXPECT_EQ(queue_.last().Wait().code(), CONCERT_CANCELLED);
  EXPECT_EQ(first.Wait().code(), CONCERT_FAILED_PRECONDITION);
  EXPECT_THAT(first.Wait().message(), HasSubstr("op 1 is no longer known"));
}

TEST_F(WaitTest, NoticesADaemonThatDies) {
  const Ticket done = Submit(), never = Submit();
  daemon_.Reach(0, 1);
  std::thread killer([&] {
    daemon_.AwaitSleeper(0);
    daemon_.Die();
  });
  const Status status = never.Wait();
  killer.join();
  EXPECT_EQ(status.code(), CONCERT_UNAVAILABLE);
  EXPECT_THAT(status.message(), HasSubstr("the daemon went away"));
  EXPECT_TRUE(never.Done()) << "there is nothing more to wait for";
  EXPECT_TRUE(done.Wait().ok()) << "what was done stays done";
  EXPECT_EQ(Submit().submit_status().code(), CONCERT_UNAVAILABLE);
}

TEST_F(WaitTest, NoticesASessionThatTheDaemonCloses) {
  const Ticket ticket = Submit();
  std::thread closer([&] {
    daemon_.AwaitSleeper(0);
    daemon_.CloseSession(CONCERT_MESSAGE_SESSION_CLOSED);
  });
  EXPECT_EQ(ticket.Wait().message(),
            "the daemon closed the session: the session was closed by the daemon");
  closer.join();
}

TEST_F(WaitTest, RefusesTicketsItCannotSee) {
  const Status foreign = session_.TicketOf({CONCERT_TIMELINE_ID(9, 0), 1}).Wait();
  EXPECT_EQ(foreign.code(), CONCERT_INVALID_ARGUMENT);
  EXPECT_THAT(foreign.message(), HasSubstr("of session 9, this is session 7"));
  EXPECT_THAT(session_.TicketOf({CONCERT_TIMELINE_ID(7, 5), 1}).Wait().message(),
              HasSubstr("queue 5, which this session has not"));
  EXPECT_FALSE(session_.TicketOf({CONCERT_TIMELINE_ID(7, 100000), 1}).Wait().ok());
  EXPECT_FALSE(
      session_.TicketOf({CONCERT_TIMELINE_ID(7, CONCERT_TIMELINE_USER | 99u), 1}).Wait().ok());
  EXPECT_TRUE(Ticket().Wait().ok());
}

TEST_F(WaitTest, StreamsNeedCuda) {
  const Status status = Submit().WaitOn(nullptr);
  EXPECT_EQ(status.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(status.message(), HasSubstr("simulated GPUs"));
  UserTimeline timeline = session_.CreateUserTimeline().value();
  const Status signalled = timeline.SignalOn(nullptr, 1);
  EXPECT_EQ(signalled.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(signalled.message(), HasSubstr("simulated GPUs"));
  EXPECT_THAT(signalled.message(), HasSubstr("use concert_user_timeline_signal"));
  EXPECT_FALSE(timeline.At(1).Done());
}

TEST_F(WaitTest, UserTimelinesRiseAndNeverFall) {
  UserTimeline timeline = session_.CreateUserTimeline().value();
  EXPECT_FALSE(timeline.At(3).Done());
  daemon_.SetSleeping(true);
  ASSERT_TRUE(timeline.Signal(3).ok());
  EXPECT_EQ(daemon_.Rings(), 1u) << "ops may wait for it";
  EXPECT_EQ(daemon_.user_timeline(0), 3u);
  EXPECT_TRUE(timeline.At(3).Wait().ok());
  ASSERT_TRUE(timeline.Signal(2).ok());
  EXPECT_EQ(daemon_.user_timeline(0), 3u);
}

TEST_F(WaitTest, AnotherThreadsSignalEndsTheWait) {
  UserTimeline timeline = session_.CreateUserTimeline().value();
  std::thread signaller([&] { timeline.Signal(1).Check(); });
  EXPECT_TRUE(timeline.At(1).Wait().ok());
  signaller.join();
}

TEST_F(WaitTest, UserTimelinesRunOutAndAreReusedFromZero) {
  std::vector<UserTimeline> timelines;
  for (int i = 0; i < 4; ++i) timelines.push_back(session_.CreateUserTimeline().value());
  EXPECT_EQ(session_.CreateUserTimeline().status().code(), CONCERT_RESOURCE_EXHAUSTED);
  timelines[2].Signal(9).Check();
  timelines.erase(timelines.begin() + 2);
  UserTimeline again = session_.CreateUserTimeline().value();
  EXPECT_EQ(daemon_.user_timeline(2), 0u);
  EXPECT_FALSE(again.At(1).Done());
}

}  // namespace
}  // namespace concert
