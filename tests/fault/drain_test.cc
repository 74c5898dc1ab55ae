// Draining: what was accepted ends, new ops are refused, and what cannot end gets a status.
#include <string>
#include <vector>

#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

const kernels::Failure kDrainTimeout{CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_DRAIN_TIMEOUT, {7}};

class DrainTest : public FaultTest {
 protected:
  DrainTest()
      : FaultTest(
            {.wait_timeout = std::chrono::hours(1), .collective_timeout = std::chrono::hours(1)},
            kNobody) {}

  void BeginDrain() {
    daemon_.server().BeginDrain();
    ASSERT_TRUE(daemon_.engine().BeginDrain().ok());
  }
  // Submits until an op is refused, since the dispatcher learns of the drain a moment later.
  static std::string RefusalOf(Queue& queue, const CopyOp& copy) {
    std::string outcome;
    Eventually([&] { return (outcome = Outcome(queue.Copy(copy))) != "OK"; });
    return outcome;
  }
};

TEST_F(DrainTest, AcceptedOpsFinishAndNewOnesAreRefused) {
  Session session = daemon_.Connect();
  Queue gated = session.CreateQueue({}).value(), free = session.CreateQueue({}).value();
  const UserTimeline gate = session.CreateUserTimeline().value();
  const Buffer buffer = FloatBuffer(session, 16, 3);
  const CopyOp copy{.src = buffer, .dst = {buffer, 32}, .bytes = 16};
  std::vector<Ticket> accepted = {gated.Copy(copy, {.waits = {gate.At(1)}})};
  for (int i = 0; i < 20; ++i) accepted.push_back(gated.Copy(copy));
  EXPECT_EQ(Outcome(free.Copy(copy)), "OK");  // so those before it were accepted
  BeginDrain();
  EXPECT_THAT(RefusalOf(free, copy), HasSubstr("UNAVAILABLE: the daemon is draining"));
  EXPECT_FALSE(daemon_.engine().drained());
  EXPECT_TRUE(Eventually([&] {
    const Status status = Session::Connect({.socket_path = daemon_.socket()}).status();
    return status.code() == CONCERT_UNAVAILABLE &&
           status.message().find("draining") != std::string::npos;
  }));
  gate.Signal(1).Check();
  for (const Ticket& ticket : accepted) EXPECT_EQ(Outcome(ticket), "OK");
  EXPECT_TRUE(Eventually([&] { return daemon_.engine().drained(); }));
}

TEST_F(DrainTest, ARankThatIsRefusedFailsThePartsThatWereAccepted) {
  const Session session = daemon_.Connect();
  Queue zero = session.CreateQueue({}).value(), one = session.CreateQueue({}).value();
  const Communicator c0 = session.Join({.name = "tp", .rank = 0, .ranks = 2}).value();
  const Communicator c1 = session.Join({.name = "tp", .rank = 1, .ranks = 2}).value();
  const Buffer buffer = FloatBuffer(session, 16, 3);
  const CopyOp copy{.src = buffer, .dst = {buffer, 32}, .bytes = 16};
  const Ticket accepted = zero.Barrier(c0);
  EXPECT_EQ(Outcome(one.Copy(copy)), "OK");
  BeginDrain();
  EXPECT_THAT(RefusalOf(one, copy), HasSubstr("draining"));
  EXPECT_THAT(Outcome(one.Barrier(c1)), HasSubstr("draining"));
  EXPECT_THAT(Outcome(accepted), HasSubstr("failed on rank 1 before it could start"));
  EXPECT_TRUE(Eventually([&] { return daemon_.engine().drained(); }));
}

TEST_F(DrainTest, WhatCannotFinishGetsAStatusAndWhatRunsKeepsItsMemory) {
  constexpr uint32_t kN = 256;
  const Session session = daemon_.Connect();
  const UserTimeline gate = session.CreateUserTimeline().value();
  Queue running = session.CreateQueue({}).value(), waiting = session.CreateQueue({}).value(),
        rank = session.CreateQueue({.gpu = 1}).value(),
        other = session.CreateQueue({.gpu = 1}).value();
  const Communicator lonely =
      session.Join({.name = "lonely", .rank = 0, .ranks = 2, .gpu = 1}).value();
  std::vector<Ticket> stuck = {rank.Barrier(lonely)};
  const Buffer buffer = FloatBuffer(session, 16, 3, 1);
  // So the part before it was accepted: on the other GPU nothing else says so.
  EXPECT_EQ(Outcome(other.Copy({.src = buffer, .dst = {buffer, 32}, .bytes = 16})), "OK");
  {
    const Buffer a = FloatBuffer(session, kN * kN, 1), w = FloatBuffer(session, kN * kN, 1),
                 d = FloatBuffer(session, kN * kN, 1);
    const GemmOp gemm{.m = kN, .n = kN, .k = kN, .a = a, .w = w, .d = d, .dtype = kFp32};
    for (int i = 0; i < 5; ++i) stuck.push_back(waiting.Gemm(gemm, {.waits = {gate.At(1)}}));
    std::vector<Ticket> busy;
    for (int i = 0; i < 100; ++i) busy.push_back(running.Gemm(gemm));
    busy.front().Wait().Check();
    BeginDrain();
    ASSERT_TRUE(daemon_.engine().FailAll(kDrainTimeout).ok());
    for (const Ticket& ticket : busy)
      EXPECT_THAT(Outcome(ticket),
                  AnyOf("OK", HasSubstr("the daemon's drain time of 7 s"), HasSubstr("draining")));
  }
  for (const Ticket& ticket : stuck)
    EXPECT_THAT(Outcome(ticket), HasSubstr("did not finish within the daemon's drain time of 7 s"));
  EXPECT_TRUE(Eventually([&] { return daemon_.engine().drained(); }));
}

TEST_F(DrainTest, TheDaemonStopsUnderRunningOps) {
  constexpr uint32_t kN = 256;
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  const Buffer a = FloatBuffer(session, kN * kN, 1), w = FloatBuffer(session, kN * kN, 1),
               d = FloatBuffer(session, kN * kN, 1);
  const GemmOp gemm{.m = kN, .n = kN, .k = kN, .a = a, .w = w, .d = d, .dtype = kFp32};
  const UserTimeline gate = session.CreateUserTimeline().value();
  const Ticket first = queue.Gemm(gemm);
  for (int i = 0; i < 100; ++i) queue.Gemm(gemm).submit_status().Check();
  // However long it takes to get to the drain, this one has not run.
  const Ticket last = queue.Gemm(gemm, {.waits = {gate.At(1)}});
  first.Wait().Check();
  BeginDrain();
  ASSERT_TRUE(daemon_.engine().FailAll(kDrainTimeout).ok());
  daemon_.server().Stop();
  EXPECT_THAT(Outcome(last), testing::Not("OK"));
}

}  // namespace
}  // namespace concert::test
