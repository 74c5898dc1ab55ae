// CONCERT_FALLBACK=cublas on a fake driver: what its streams are given and when, and what is
// refused. What they compute is fallback_test.cc's. And what a session with a daemon asks of it.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "concert/concert.hpp"
#include "tests/support/fake_daemon.h"
#include "tests/unit/client/fake_driver.h"

namespace concert {
namespace {

using test::FakeDriver;
using testing::HasSubstr;

void* OpenDriver() {
  static void* const opened = [] {
    void* driver = dlopen(CONCERT_FAKE_DRIVER, RTLD_NOW);
    if (driver == nullptr || dlopen(CONCERT_FAKE_CUBLAS_LT, RTLD_NOW) == nullptr) std::abort();
    return driver;
  }();
  return opened;
}

FakeDriver& Driver() {
  return *static_cast<FakeDriver*>(dlsym(OpenDriver(), test::kFakeDriverSymbol));
}

void* MakeStream() {
  using Make = int (*)(void** stream, unsigned flags, int priority);
  void* stream = nullptr;
  reinterpret_cast<Make>(dlsym(OpenDriver(), "cuStreamCreateWithPriority"))(&stream, 0, 0);
  return stream;
}

class LocalTest : public testing::Test {
 protected:
  static Session Connect() {
    Driver().failed = false;
    Driver().hung = 0;
    Driver().algorithms = 1;
    return Session::Connect({.socket_path = "/nonexistent", .fallback = Fallback::kCublas}).value();
  }
  CopyOp XToY() const { return {.src = x_, .dst = y_, .bytes = 64}; }

  Session session_ = Connect();
  Buffer x_ = session_.Allocate(4096).value(), y_ = session_.Allocate(4096).value();
  UserTimeline gate_ = session_.CreateUserTimeline().value();
};

TEST_F(LocalTest, DestroyingAQueueWaitsForNothingAndItsOpsRun) {
  const int64_t bytes_before = Driver().bytes;
  std::optional<Queue> queue(session_.CreateQueue().value());
  x_.Write("concert", 8).Check();
  const Ticket copied = queue->Copy(XToY(), {.waits = {gate_.At(1)}});
  queue.reset();
  EXPECT_EQ(Driver().hung, 0) << "it waited for the gate, which this thread opens";
  EXPECT_FALSE(copied.Done());
  gate_.Signal(1).Check();
  const Queue another = session_.CreateQueue().value();  // a call in which the fake gets on
  EXPECT_TRUE(copied.Wait().ok());
  char back[8];
  y_.Read(back, 8).Check();
  EXPECT_STREQ(back, "concert");
  EXPECT_EQ(Driver().streams, 1);
  EXPECT_EQ(Driver().bytes - bytes_before, 32 << 20) << "the workspace went with its stream";
}

TEST_F(LocalTest, ATimelineIsTakenAgainOnlyWhenItsStreamHasEnded) {
  std::optional<Queue> queue(session_.CreateQueue().value());
  const Ticket held = queue->Copy(XToY(), {.waits = {gate_.At(1)}});
  queue.reset();
  Queue second = session_.CreateQueue().value();
  const Ticket copied = second.Copy(XToY());
  EXPECT_NE(copied.get().timeline, held.get().timeline);
  EXPECT_TRUE(copied.Wait().ok());
  EXPECT_FALSE(held.Done()) << "its stream has not written its ticket";
  gate_.Signal(1).Check();
  EXPECT_TRUE(copied.Wait().ok());
  Queue third = session_.CreateQueue().value();  // a call in which the fake gets on
  Queue fourth = session_.CreateQueue().value();
  EXPECT_EQ(fourth.Copy(XToY()).get().timeline, held.get().timeline);
  EXPECT_EQ(fourth.last().get().value, held.get().value + 1);
}

TEST_F(LocalTest, ASessionMayEndBeforeItsStreams) {
  {
    Session session = Connect();
    const Buffer imported = session.Import(x_.Address().value(), 4096).value();
    const UserTimeline gate = session.CreateUserTimeline().value();
    Queue queue = session.CreateQueue().value();
    queue.Copy({.src = imported, .dst = {imported, 64}, .bytes = 64}, {.waits = {gate.At(1)}})
        .submit_status()
        .Check();
  }
  EXPECT_EQ(Driver().hung, 0);
  // Its words are still there for the stream, which the fake looks at in every call.
  EXPECT_TRUE(session_.CreateQueue().ok());
}

TEST_F(LocalTest, ARefusedOpLeavesNoWaitOnItsQueue) {
  Queue queue = session_.CreateQueue().value();
  const GemmOp gemm = {.m = 4, .n = 4, .k = 4, .a = x_, .w = x_, .d = y_};
  Driver().algorithms = 0;
  const Status refused = queue.Gemm(gemm, {.waits = {gate_.At(1)}}).submit_status();
  EXPECT_EQ(refused.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(refused.message(), HasSubstr("has no kernel"));
  GemmOp silu = gemm;
  silu.activation = kSilu;
  EXPECT_EQ(queue.Gemm(silu, {.waits = {gate_.At(1)}}).submit_status().code(),
            CONCERT_UNIMPLEMENTED);
  const Ticket foreign = Connect().CreateUserTimeline().value().At(1);
  EXPECT_EQ(queue.Copy(XToY(), {.waits = {gate_.At(1), foreign}}).submit_status().code(),
            CONCERT_INVALID_ARGUMENT);
  EXPECT_TRUE(queue.Copy(XToY()).Done()) << "it waits for the gate";
  Driver().algorithms = 1;
  const int matmuls = Driver().matmuls;
  EXPECT_TRUE(queue.Gemm(gemm).Wait().ok());
  EXPECT_EQ(Driver().matmuls, matmuls + 1);
}

TEST_F(LocalTest, PollingNoticesThatTheDeviceFailed) {
  Queue queue = session_.CreateQueue().value();
  const Ticket held = queue.Copy(XToY(), {.waits = {gate_.At(1)}});
  int done = 1;
  concert_error error;
  EXPECT_EQ(concert_poll(session_.get(), held.get(), &done, &error), CONCERT_OK);
  EXPECT_EQ(done, 0);
  Driver().failed = true;
  EXPECT_EQ(concert_poll(session_.get(), held.get(), &done, &error), CONCERT_INTERNAL);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(held.Wait().code(), CONCERT_INTERNAL);
}

// Numbers of queues and timelines are the same in both.
TEST_F(LocalTest, ATicketOfAnotherSessionIsNotTakenForOneOfThis) {
  Session other = Connect();
  Queue queue = session_.CreateQueue().value(), others = other.CreateQueue().value();
  const concert_ticket ticket = others.last().get();
  EXPECT_NE(ticket.timeline, queue.last().get().timeline);
  EXPECT_THAT(session_.TicketOf(ticket).Wait().message(), HasSubstr("is not one of this session"));
}

// As a daemon refuses them. Kernels would end the process's CUDA context there.
TEST_F(LocalTest, OnlyMemoryOfCudasIsImported) {
  auto* const memory = static_cast<char*>(x_.Address().value());
  const Buffer imported = session_.Import(memory + 64, 4096 - 64).value();
  EXPECT_EQ(imported.Address().value(), memory + 64);
  const auto refused = [&](const void* pointer, uint64_t bytes) {
    const Status status = session_.Import(pointer, bytes).status();
    EXPECT_EQ(status.code(), CONCERT_INVALID_ARGUMENT);
    return std::string(status.message());
  };
  EXPECT_EQ(refused(memory + 64, 4096 - 63),
            "bytes is 4033; from the pointer on there are 1 to 4032 in its allocation");
  EXPECT_EQ(refused(memory, 0),
            "bytes is 0; from the pointer on there are 1 to 4096 in its allocation");
  char host[64];
  EXPECT_THAT(refused(host, sizeof(host)), HasSubstr("no memory that CUDA has allocated"));
}

TEST_F(LocalTest, OperandsThatADaemonRefusesAreRefused) {
  Queue queue = session_.CreateQueue().value();
  const Ticket copy = queue.Copy({.src = x_, .dst = {x_, 32}, .bytes = 64});
  EXPECT_THAT(copy.submit_status().message(), HasSubstr("dst overlaps src"));
  const Ticket odd = queue.Gemm({.m = 4, .n = 4, .k = 4, .a = {x_, 1}, .w = x_, .d = y_});
  EXPECT_EQ(odd.submit_status().message(), "a.offset 1 is not a multiple of 2 bytes");
  const Ticket long_a = queue.Gemm({.m = 4096, .n = 4, .k = 4, .a = x_, .w = x_, .d = y_});
  EXPECT_THAT(long_a.submit_status().message(), HasSubstr("has only 4096 bytes"));
}

TEST(RemoteOnCudaTest, WhatAStreamWaitsOnIsLetGoOfWhereNoContextIsCurrent) {
  test::FakeDaemon::Options options;
  options.edit_hello = [](concert_hello_reply& reply) {
    reply.gpus[0].device = CONCERT_BACKEND_CUDA;
  };
  test::FakeDaemon daemon(options);
  const int before = Driver().registered;
  {
    const Session session =
        Session::Connect({.socket_path = daemon.path(), .fallback = Fallback::kNone}).value();
    const UserTimeline gate = session.CreateUserTimeline().value();
    Queue queue = session.CreateQueue().value();
    const Ticket barrier = queue.Barrier(session.Join({.name = "one", .ranks = 1}).value());
    void* const stream = MakeStream();
    EXPECT_EQ(gate.At(1).WaitOn(stream).code(), CONCERT_FAILED_PRECONDITION);
    Driver().contexts = 1;
    EXPECT_TRUE(gate.At(1).WaitOn(stream).ok());
    EXPECT_TRUE(barrier.WaitOn(stream).ok());
    EXPECT_EQ(Driver().registered, before + 2);
    // The stream must be past its waits before the session ends.
    gate.Signal(1).Check();
    daemon.Reach(0, barrier.get().value);
    Driver().contexts = 0;
  }
  EXPECT_EQ(Driver().registered, before);
}

}  // namespace
}  // namespace concert
