// Calls of the control protocol that the daemon answers late or never, and those that wait for
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/src/remote/control_socket.h"
#include "concert/concert.hpp"
#include "tests/support/fake_daemon.h"

namespace concert {
namespace {

using test::FakeDaemon;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

template <typename Request>
std::vector<uint32_t> HandlesOf(const FakeDaemon& daemon, concert_control_type type,
                                uint32_t Request::*handle) {
  std::vector<uint32_t> handles;
  for (const std::vector<char>& bytes : daemon.Requests(type)) {
    Request request;
    std::memcpy(&request, bytes.data(), sizeof(request));
    handles.push_back(request.*handle);
  }
  return handles;
}

// A session whose calls do not wait long.
class LateTest : public testing::Test {
 protected:
  // Nor does connecting: a machine that is busy elsewhere may need another go.
  LateTest() {
    Result<Session> connected = Status();
    do {
      daemon_.emplace();
      connected = Session::Connect({.socket_path = daemon_->path(),
                                    .timeout = std::chrono::milliseconds(100),
                                    .fallback = Fallback::kNone});
    } while (connected.status().code() == CONCERT_DEADLINE_EXCEEDED);
    session_ = std::move(connected).value();
  }
  // Waits until the daemon has answered what came before.
  void CatchUp() {
    while (!session_.CreateQueue().ok()) std::this_thread::yield();
  }
  // `call` times out, and is answered when nobody waits for it any more.
  template <typename MakeCall>
  void Late(MakeCall call) {
    daemon_->Hold();
    EXPECT_EQ(call().code(), CONCERT_DEADLINE_EXCEEDED);
    daemon_->AwaitHeld(1);
    daemon_->Answer();
    CatchUp();  // reads the answer, and tells the daemon
    CatchUp();  // the daemon has been told
  }
  std::vector<uint32_t> ReleasedBuffers() const {
    return HandlesOf(*daemon_, CONCERT_CONTROL_RELEASE_BUFFER, &concert_release_buffer::buffer);
  }

  std::optional<FakeDaemon> daemon_;
  Session session_;
};

TEST_F(LateTest, WhatNobodyWaitsForAnyMoreIsGivenUp) {
  Late([&] { return session_.Allocate(64).status(); });
  EXPECT_THAT(ReleasedBuffers(), ElementsAre(1));
  const int fd = memfd_create("import", MFD_CLOEXEC);
  Late([&] {
    concert_import import = {};
    import.memory = CONCERT_MEMORY_MEMFD, import.fd = fd, import.bytes = 64;
    return session_.Import(import).status();
  });
  close(fd);
  EXPECT_THAT(ReleasedBuffers(), ElementsAre(1, 2));
  Late([&] {
    Program program = session_.BeginProgram().value();
    return program.End();
  });
  EXPECT_THAT(ReleasedBuffers(), ElementsAre(1, 2, FakeDaemon::kFirstProgram));
  Late([&] { return session_.Join({.name = "tp", .rank = 1, .ranks = 2}).status(); });
  EXPECT_THAT(HandlesOf(*daemon_, CONCERT_CONTROL_LEAVE_COMMUNICATOR,
                        &concert_leave_communicator::communicator),
              ElementsAre(1 << 8 | 1));
}

TEST_F(LateTest, NorDoesAQueueStay) {
  const auto gone = [&] {
    return HandlesOf(*daemon_, CONCERT_CONTROL_DESTROY_QUEUE, &concert_destroy_queue::queue);
  };
  daemon_->Hold();
  EXPECT_EQ(session_.CreateQueue().status().code(), CONCERT_DEADLINE_EXCEEDED);
  daemon_->AwaitHeld(1);
  daemon_->Answer();
  while (!session_.Allocate(64).ok()) std::this_thread::yield();
  while (!session_.Allocate(64).ok()) std::this_thread::yield();
  EXPECT_THAT(gone(), ElementsAre(0));
}

// Its old handle went with the call, so that nothing can use it.
TEST_F(LateTest, NorDoesABufferThatIsSealedTooLate) {
  Result<Buffer> weights = session_.Allocate(64);
  while (!weights.ok()) weights = session_.Allocate(64);
  CatchUp();
  const size_t released = ReleasedBuffers().size();
  Late([&] { return weights->Seal(); });
  ASSERT_EQ(ReleasedBuffers().size(), released + 1);
  const auto asked = HandlesOf(*daemon_, CONCERT_CONTROL_SEAL_BUFFER, &concert_seal_buffer::buffer);
  EXPECT_GT(ReleasedBuffers().back(), asked.back()) << "that of the sealed one";
}

// Each registration is in time, all of them are not.
TEST(SlowDaemonTest, WhatTakesSeveralRequestsIsBoundedAsAWhole) {
  constexpr std::chrono::milliseconds kTimeout(400);
  FakeDaemon::Options options;
  options.program_time = kTimeout / 4;
  FakeDaemon daemon(options);
  const Session session =
      Session::Connect(
          {.socket_path = daemon.path(), .timeout = kTimeout, .fallback = Fallback::kNone})
          .value();
  const Buffer x = session.Allocate(4096).value();
  Program program = session.BeginProgram().value();
  program.Rows({1, 2, 3, 4, 5, 6, 7, 8}).Check();
  program.queue()
      .Elementwise({.function = kAdd, .rows = 8, .columns = 16, .x = x, .y = x, .out = x})
      .submit_status()
      .Check();
  const Status status = program.End();
  EXPECT_EQ(status.code(), CONCERT_DEADLINE_EXCEEDED);
  EXPECT_THAT(status.message(), HasSubstr("the daemon did not reply within 400 ms"));
}

// With a socket of its own, so that each call has its own bound.
class TurnsTest : public testing::Test {
 protected:
  TurnsTest() {
    bool no_daemon = false;
    concert_error error;
    EXPECT_EQ(socket_.Connect(daemon_.path().c_str(), kLongNs, client::Deadline(kLongNs),
                              &no_daemon, &error),
              CONCERT_OK);
  }
  int Join(const client::Deadline& deadline, concert_error* error) {
    concert_join_communicator request{};
    concert_join_communicator_reply reply;
    return socket_.Call(CONCERT_CONTROL_JOIN_COMMUNICATOR, &request, &reply, -1, nullptr, deadline,
                        error);
  }

  std::vector<uint32_t> Released() const {
    return HandlesOf(daemon_, CONCERT_CONTROL_RELEASE_BUFFER, &concert_release_buffer::buffer);
  }

  static constexpr int64_t kLongNs = 600'000'000'000;
  FakeDaemon daemon_;
  client::ControlSocket socket_;
};

TEST_F(TurnsTest, WaitingForAnotherThreadsCallCounts) {
  daemon_.Hold();
  int first = -1;
  std::thread other([&] { first = Join(client::Deadline(kLongNs), nullptr); });
  daemon_.AwaitHeld(1);
  concert_error error;
  // The other one ends after this.
  EXPECT_EQ(Join(client::Deadline(1'000'000), &error), CONCERT_DEADLINE_EXCEEDED);
  EXPECT_THAT(error.message, HasSubstr("calls of other threads waited for the daemon"));
  daemon_.Answer();
  other.join();
  EXPECT_EQ(first, CONCERT_OK);
  EXPECT_EQ(daemon_.Requests(CONCERT_CONTROL_JOIN_COMMUNICATOR).size(), 1u);
}

TEST_F(TurnsTest, WhatCannotBeReleasedInTimeIsReleasedWhenItIsSomebodysTurn) {
  daemon_.Hold();
  std::thread other([&] { Join(client::Deadline(kLongNs), nullptr); });
  daemon_.AwaitHeld(1);
  socket_.Release(CONCERT_CONTROL_RELEASE_BUFFER, 5, client::Deadline(1'000'000));
  socket_.ReleaseSoon(CONCERT_CONTROL_RELEASE_BUFFER, 6);
  EXPECT_TRUE(daemon_.Requests(CONCERT_CONTROL_RELEASE_BUFFER).empty());
  daemon_.Answer();
  other.join();
  EXPECT_EQ(Join(client::Deadline(kLongNs), nullptr), CONCERT_OK);  // the daemon has caught up
  EXPECT_THAT(Released(), ElementsAre(5, 6));
}

TEST_F(TurnsTest, PostingWaitsForNobody) {
  daemon_.Hold();
  std::thread other([&] { Join(client::Deadline(kLongNs), nullptr); });
  daemon_.AwaitHeld(1);
  concert_create_program request{};
  EXPECT_EQ(socket_.Post(&request, -1), client::ControlSocket::Posted::kBusy);
  daemon_.Answer();
  other.join();
  EXPECT_EQ(socket_.Post(&request, -1), client::ControlSocket::Posted::kYes);
  concert_program_reply reply;
  const client::Deadline deadline(kLongNs);
  ASSERT_TRUE(socket_.Collect(&deadline, &reply));
  EXPECT_EQ(reply.program, FakeDaemon::kFirstProgram);
}

// A daemon ends the session of a client that leaves many replies unread.
TEST_F(TurnsTest, WhatIsReleasedSoonLeavesFewRepliesUnread) {
  daemon_.Hold();
  std::vector<uint32_t> all(32);
  std::iota(all.begin(), all.end(), 1);
  for (const uint32_t buffer : all) socket_.ReleaseSoon(CONCERT_CONTROL_RELEASE_BUFFER, buffer);
  concert_create_program request{};
  EXPECT_EQ(socket_.Post(&request, -1), client::ControlSocket::Posted::kBusy);
  daemon_.Answer();
  EXPECT_EQ(Join(client::Deadline(kLongNs), nullptr), CONCERT_OK);
  EXPECT_THAT(Released(), ElementsAreArray(all)) << "all come before a call that follows";
}

TEST_F(TurnsTest, NorDoCallsThatTimeOut) {
  daemon_.Hold();
  for (int i = 0; i < 32; ++i) {
    concert_error error;
    EXPECT_EQ(Join(client::Deadline(1'000'000), &error), CONCERT_DEADLINE_EXCEEDED);
    EXPECT_THAT(error.message, HasSubstr("the daemon did not reply within"));
  }
  daemon_.Answer();
  EXPECT_EQ(Join(client::Deadline(kLongNs), nullptr), CONCERT_OK);
  EXPECT_EQ(Join(client::Deadline(kLongNs), nullptr), CONCERT_OK);  // the daemon has caught up
  const size_t joined = daemon_.Requests(CONCERT_CONTROL_JOIN_COMMUNICATOR).size() - 2;
  EXPECT_LT(joined, 32u) << "the others were not sent";
  EXPECT_EQ(daemon_.Requests(CONCERT_CONTROL_LEAVE_COMMUNICATOR).size(), joined);
}

TEST_F(TurnsTest, WhatCouldNotBeSentInTimeIsReleasedLater) {
  daemon_.Hold();
  for (uint32_t buffer = 1; buffer <= 16; ++buffer)
    socket_.Release(CONCERT_CONTROL_RELEASE_BUFFER, buffer, client::Deadline(1'000'000));
  EXPECT_LT(Released().size(), 16u);
  daemon_.Answer();
  EXPECT_EQ(Join(client::Deadline(kLongNs), nullptr), CONCERT_OK);
  EXPECT_EQ(Released().size(), 16u);
}

}  // namespace
}  // namespace concert
