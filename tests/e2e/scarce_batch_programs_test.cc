// Programs that the library makes of batches are never in the way of what the client asks for.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "tests/e2e/batch_programs_fixture.h"

namespace concert::test {
namespace {

class FewProgramOpsTest : public BatchProgramsTest {
 protected:
  static TestDaemonOptions WithOps(uint64_t ops) {
    TestDaemonOptions options{.gpus = 1};
    options.limits[Resource::kProgramOps] = {.per_user = ops, .in_all = ops};
    return options;
  }
  explicit FewProgramOpsTest(uint64_t ops = 10) : BatchProgramsTest(WithOps(ops)) {}
};

TEST_F(FewProgramOpsTest, TheClientsOwnProgramsComeFirst) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  const Sums sums(session, 6);
  ASSERT_TRUE(BecomesARun(queue, sums.copy, [&] { sums.Run(session, queue); }));
  Program program = session.BeginProgram().value();
  for (int op = 0; op < 9; ++op) sums.Add(program.queue()).submit_status().Check();
  const Status registered = program.End();
  EXPECT_TRUE(registered.ok()) << registered.ToString();
  TakeEnded(queue, sums.copy);
  const float before = sums.X();
  for (int i = 0; i < 20; ++i) sums.Run(session, queue);
  EXPECT_EQ(sums.X(), before + 120);
  EXPECT_EQ(TakeEnded(queue, sums.copy).runs, 0);
  EXPECT_EQ(ProgramsOf(session).size(), 1u);
}

class NoProgramOpsTest : public FewProgramOpsTest {
 protected:
  NoProgramOpsTest() : FewProgramOpsTest(3) {}
};

TEST_F(NoProgramOpsTest, WhatTheQuotaRefusesStaysSingleOps) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  const Sums sums(session);
  for (int i = 0; i < 50; ++i) sums.Run(session, queue);
  EXPECT_EQ(sums.X(), 250);
  EXPECT_EQ(TakeEnded(queue, sums.copy).runs, 0);
}

class FewBuffersTest : public BatchProgramsTest {
 protected:
  static TestDaemonOptions WithBuffers(uint64_t buffers) {
    TestDaemonOptions options{.gpus = 1};
    options.limits[Resource::kBuffers] = {.per_user = buffers, .in_all = buffers};
    return options;
  }
  explicit FewBuffersTest(uint64_t buffers = 4) : BatchProgramsTest(WithBuffers(buffers)) {}
};

TEST_F(FewBuffersTest, TheClientsOwnBuffersComeFirst) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  const Sums sums(session);
  ASSERT_TRUE(BecomesARun(queue, sums.copy, [&] { sums.Run(session, queue); }));
  const Result<Buffer> fourth = session.Allocate(64);
  EXPECT_TRUE(fourth.ok()) << fourth.status().ToString();
  EXPECT_EQ(session.Allocate(64).status().code(), CONCERT_RESOURCE_EXHAUSTED);
}

class FiveBuffersTest : public FewBuffersTest {
 protected:
  FiveBuffersTest() : FewBuffersTest(5) {}
};

// Two programs give way, to the first thread that is refused.
TEST_F(FiveBuffersTest, TheyGiveWayToAllThreadsThatAreRefused) {
  for (int round = 0; round < 30; ++round) {
    ASSERT_TRUE(daemon_.WaitUntilEmpty());  // of what the round before had
    const Session session = daemon_.Connect();
    Queue queue = session.CreateQueue().value();
    const Sums sums(session);
    const auto batch_of = [&](uint32_t count) {
      Batch batch = session.BeginBatch().value();
      for (uint32_t i = 0; i < count; ++i) sums.Add(queue).submit_status().Check();
      queue.Copy({.src = sums.x, .dst = sums.copy, .bytes = kBytes}).submit_status().Check();
      batch.End().Check();
      queue.last().Wait(kTimeout).Check();
    };
    ASSERT_TRUE(Eventually([&] {
      batch_of(5);
      batch_of(6);
      return ProgramsOf(session).size() == 2;
    }));
    std::array<std::optional<Result<Buffer>>, 2> got;
    std::barrier together(2);
    const auto allocate = [&](size_t i) {
      together.arrive_and_wait();
      got[i] = session.Allocate(64);
    };
    std::jthread other([&] { allocate(0); });
    allocate(1);
    other.join();
    for (const auto& buffer : got)
      EXPECT_TRUE(buffer->ok()) << "round " << round << ": " << buffer->status().ToString();
  }
}

class ManyGpusTest : public BatchProgramsTest {
 protected:
  static constexpr uint32_t kGpus = 8, kEach = 4, kOwn = 3;
  static TestDaemonOptions WithGpus() {
    TestDaemonOptions options{.gpus = kGpus};
    constexpr uint64_t kAll = kOwn + kGpus * kEach;
    options.limits[Resource::kBuffers] = {.per_user = kAll, .in_all = kAll};
    return options;
  }
  ManyGpusTest() : BatchProgramsTest(WithGpus()) {}
};

// The answers to that are more than the daemon leaves unread.
TEST_F(ManyGpusTest, AllOfThemMayGiveWayAtOnce) {
  if (daemon_.gpu_count() < int{kGpus}) GTEST_SKIP() << "needs eight GPUs";
  const Session session = daemon_.Connect();
  const Sums sums(session);
  std::vector<Queue> queues;
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu)
    queues.push_back(session.CreateQueue({.gpu = gpu}).value());
  const auto batch_of = [&](uint32_t gpu, uint32_t count) {
    Batch batch = session.BeginBatch(gpu).value();
    for (uint32_t i = 0; i < count; ++i) sums.Add(queues[gpu]).submit_status().Check();
    batch.End().Check();
    queues[gpu].last().Wait(kTimeout).Check();
  };
  ASSERT_TRUE(Eventually([&] {
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu)
      for (uint32_t i = 0; i < kEach; ++i) batch_of(gpu, 5 + i);
    return ProgramsOf(session).size() == kGpus * kEach;
  }));
  const Result<Buffer> buffer = session.Allocate(64);
  EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
  batch_of(0, 5);
}

TEST_F(BatchProgramsTest, TheBoundOnProgramsIsTheClientsOwn) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  const Sums sums(session);
  ASSERT_TRUE(BecomesARun(queue, sums.copy, [&] { sums.Run(session, queue); }));
  std::vector<Program> programs;
  for (int i = 0; i < 256; ++i) {
    programs.push_back(session.BeginProgram().value());
    sums.Add(programs.back().queue()).submit_status().Check();
    ASSERT_TRUE(programs.back().End().ok()) << i;
  }
  EXPECT_TRUE(BecomesARun(queue, sums.copy, [&] { sums.Run(session, queue); }))
      << "it is there still";
}

}  // namespace
}  // namespace concert::test
