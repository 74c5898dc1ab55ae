// Devices that refuse launches or die: ops end with the device's error, nothing hangs, and the
// other GPU goes on.
#include <string>
#include <vector>

#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// The healthy client works on GPU 1.
class DeviceTest : public FaultTest {
 protected:
  DeviceTest()
      : FaultTest(
            {.wait_timeout = std::chrono::hours(1), .collective_timeout = std::chrono::hours(1)},
            1) {}
};

TEST_F(DeviceTest, AFailedLaunchFailsItsOpsAndNoOthers) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  const Buffer buffer = FloatBuffer(session, 8, 2);
  const CopyOp copy{.src = buffer, .dst = {buffer, 16}, .bytes = 16};
  for (int round = 0; round < 50; ++round) {
    daemon_.node().gpu(0).FailLaunches(1);
    EXPECT_THAT(Outcome(queue.Copy(copy)),
                HasSubstr("INTERNAL: GPU 0 failed to run the op (copy): device error 13"));
    EXPECT_EQ(Outcome(queue.Copy(copy)), "OK");
  }
}

TEST_F(DeviceTest, AFailedCollectiveFailsOnEveryRank) {
  const Session one = daemon_.Connect(), two = daemon_.Connect();
  Queue q1 = one.CreateQueue({}).value(), q2 = two.CreateQueue({.gpu = 1}).value();
  const Communicator c1 = one.Join({.name = "tp", .rank = 0, .ranks = 2}).value();
  const Communicator c2 = two.Join({.name = "tp", .rank = 1, .ranks = 2, .gpu = 1}).value();
  daemon_.node().gpu(0).FailLaunches(1);
  const Ticket t1 = q1.Barrier(c1), t2 = q2.Barrier(c2);
  for (const Ticket& ticket : {t1, t2})
    EXPECT_THAT(Outcome(ticket), HasSubstr("failed to run the op (barrier)"));
  const Ticket t3 = q1.Barrier(c1), t4 = q2.Barrier(c2);
  for (const Ticket& ticket : {t3, t4}) EXPECT_EQ(Outcome(ticket), "OK");
}

// One whose blocks wait for each other in vain.
TEST_F(DeviceTest, AStalledRunFailsAndNoOther) {
  constexpr uint32_t kN = 512;  // to compute, milliseconds: the run is found before it has ended
  const Session session = daemon_.Connect();
  const Buffer x = FloatBuffer(session, kN * kN, 1);
  Program program = session.BeginProgram().value();
  const Buffer slots[] = {program.Binding(x.bytes()).value(), program.Arena(x.bytes()).value()};
  for (int i = 0; i < 10; ++i) {
    const GemmOp gemm{.m = kN,
                      .n = kN,
                      .k = kN,
                      .a = slots[i % 2],
                      .w = x,
                      .d = slots[(i + 1) % 2],
                      .alpha = 1.f / kN,
                      .dtype = kFp32};
    program.queue().Gemm(gemm).submit_status().Check();
  }
  program.End().Check();
  Queue runs = session.CreateQueue().value(), copies = session.CreateQueue().value();
  daemon_.node().gpu(0).StallNextRun();
  const Buffer in = FloatBuffer(session, kN * kN, 1);
  const Ticket stalled = runs.Run({.program = program, .bindings = {in}});
  const Ticket next = runs.Run({.program = program, .bindings = {in}});
  const Ticket copy = copies.Copy({.src = x, .dst = {x, 16}, .bytes = 16});
  EXPECT_EQ(Outcome(copy), "OK");
  EXPECT_EQ(Outcome(stalled),
            "INTERNAL: GPU 0 gave the run up: block 0 of its launch waited for others in vain at "
            "stage 0 of the program; runs submitted from now on do without the step kernel");
  EXPECT_EQ(Outcome(next), "OK");
  EXPECT_TRUE(daemon_.engine().dispatcher(0).gauges().healthy);
  const auto why_no_step = [&] {
    for (const daemon::SessionSummary& one : daemon_.server().Sessions())
      if (!one.programs.empty()) return one.programs[0].why_no_step;
    return std::string();
  };
  EXPECT_TRUE(Eventually([&] { return why_no_step() == "a run of it stalled"; })) << why_no_step();
}

TEST_F(DeviceTest, ADeadGpuEndsEverythingOnItAndRefusesMore) {
  constexpr uint32_t kN = 256;
  const Session session = daemon_.Connect();
  const UserTimeline gate = session.CreateUserTimeline().value();
  const Buffer a = FloatBuffer(session, kN * kN, 1), w = FloatBuffer(session, kN * kN, 1);
  std::optional<Buffer> d = FloatBuffer(session, kN * kN, 1);
  const GemmOp gemm{.m = kN, .n = kN, .k = kN, .a = a, .w = w, .d = *d, .dtype = kFp32};
  Queue running = session.CreateQueue({}).value(), waiting = session.CreateQueue({}).value();
  std::vector<Ticket> tickets;
  for (int i = 0; i < 50; ++i) tickets.push_back(running.Gemm(gemm));
  for (int i = 0; i < 10; ++i) tickets.push_back(waiting.Gemm(gemm, {.waits = {gate.At(1)}}));
  // A collective with a rank on each GPU, whose other rank has not come.
  const Communicator c0 = session.Join({.name = "tp", .rank = 0, .ranks = 2}).value();
  const Communicator c1 = session.Join({.name = "tp", .rank = 1, .ranks = 2, .gpu = 1}).value();
  Queue collective = session.CreateQueue({}).value(),
        elsewhere = session.CreateQueue({.gpu = 1}).value();
  const Ticket offered = collective.Barrier(c0);
  tickets.front().Wait().Check();
  daemon_.node().gpu(0).Fault();
  const auto lost = HasSubstr("GPU 0 has faulted and runs nothing any more");
  for (const Ticket& ticket : tickets)
    EXPECT_THAT(Outcome(ticket), AnyOf("OK", lost, HasSubstr("device error")));
  d.reset();  // nothing may write to it any more
  EXPECT_THAT(Outcome(waiting.Copy({.src = a, .dst = w, .bytes = 16})), lost);
  const Ticket partner = elsewhere.Barrier(c1);
  EXPECT_THAT(Outcome(offered), testing::Not("OK"));
  EXPECT_THAT(Outcome(partner), testing::Not("OK"));
  // The next one does not wait for the part that is refused.
  const Ticket next = elsewhere.Barrier(c1);
  EXPECT_THAT(Outcome(collective.Barrier(c0)), lost);
  EXPECT_THAT(Outcome(next), HasSubstr("failed on rank 0 before it could start"));
  EXPECT_FALSE(daemon_.engine().dispatcher(0).gauges().healthy);
  EXPECT_TRUE(daemon_.engine().dispatcher(1).gauges().healthy);
}

}  // namespace
}  // namespace concert::test
