// Batches that come again and again, through libconcert and a daemon: they become programs, and
// nobody can tell by results, tickets, memory or errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/e2e/batch_programs_fixture.h"
#include "tests/support/bf16.h"
#include "tests/support/seed.h"
#include "tests/support/small_model.h"

namespace concert::test {
namespace {

std::vector<int32_t> Tokens(const Buffer& buffer) {
  std::vector<int32_t> tokens(kRows);
  buffer.Read(tokens.data(), kRows * 4).Check();
  return tokens;
}

TEST_F(BatchProgramsTest, WhatABatchUsesMayBeFreedBeforeItEnds) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  Buffer from = session.Allocate(kBytes).value(), through = session.Allocate(kBytes).value();
  const Buffer to = session.Allocate(kBytes).value();
  Sums::Write(from, 3);
  Program program = session.BeginProgram().value();
  program.queue().Copy({.src = from, .dst = through, .bytes = kBytes}).submit_status().Check();
  program.End().Check();
  Batch batch = session.BeginBatch().value();
  const Ticket run = queue.Run({.program = program});
  program = Program();
  const Ticket copy = queue.Copy({.src = through, .dst = to, .bytes = kBytes});
  from = Buffer();
  through = Buffer();
  batch.End().Check();
  run.Wait(kTimeout).Check();
  copy.Wait(kTimeout).Check();
  EXPECT_EQ(Sums::Read(to), 3);
}

TEST_F(BatchProgramsTest, StepsGiveWhatTheirOpsGiveOneByOne) {
  const uint32_t seed = test::Seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const Session session = daemon_.Connect("model");
  const Model model = MakeModel(session, seed), twin = MakeModel(session, seed);
  const StepMemory memory = MakeBuffers(session), its = MakeBuffers(session);
  const Buffer spare = session.Allocate(kRows * 4).value();
  Queue single = session.CreateQueue().value(), batched = session.CreateQueue().value();
  std::vector<int32_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 7);
  int step = 0, runs = 0;
  const auto one = [&] {
    memory.ids.Write(ids.data(), kRows * 4).Check();
    its.ids.Write(ids.data(), kRows * 4).Check();
    SubmitStep(single, model, memory);
    {
      const Batch batch = session.BeginBatch().value();
      SubmitStep(batched, twin, its);
      // Without it, all can go with the other queue's ops and is no run.
      batched.Copy({.src = its.next, .dst = spare, .bytes = kRows * 4}).submit_status().Check();
    }
    single.last().Wait(kTimeout).Check();
    batched.last().Wait(kTimeout).Check();
    ids = Tokens(its.next);
    ASSERT_EQ(ids, Tokens(memory.next)) << "step " << step;
    ++step;
  };
  ASSERT_TRUE(BecomesARun(batched, its.ids, one));
  for (int i = 0; i < 20; ++i) {
    one();
    runs += TakeEnded(batched, its.ids).runs;
  }
  EXPECT_EQ(runs, 20);
  std::vector<uint16_t> state(kRows * kHidden), of_twin(kRows * kHidden);
  model.state.Read(state.data(), state.size() * kElement).Check();
  twin.state.Read(of_twin.data(), of_twin.size() * kElement).Check();
  // On a GPU other kernels than the ops' may round in another way.
  for (size_t i = 0; i < state.size(); ++i)
    ASSERT_NEAR(FromBf16(state[i]), FromBf16(of_twin[i]), 0.05 * (1 + std::abs(FromBf16(state[i]))))
        << i;

  const std::vector<kernels::ProgramSummary> programs = ProgramsOf(session);
  ASSERT_EQ(programs.size(), 1u);
  EXPECT_TRUE(programs[0].of_batch);
  EXPECT_EQ(programs[0].op_count, 9u);
}

TEST_F(BatchProgramsTest, ABatchWithAnotherOperandIsAnotherBatch) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  Sums sums(session), others(session);
  ASSERT_TRUE(BecomesARun(queue, sums.copy, [&] { sums.Run(session, queue); }));
  const float before = sums.X();
  Sums::Write(others.y, 100);
  std::swap(sums.y, others.y);
  for (uint32_t i = 1; i <= 20; ++i) {
    sums.Run(session, queue);
    EXPECT_EQ(sums.X(), before + 100.f * static_cast<float>(i * sums.sums));
    if (i == 1) {
      EXPECT_EQ(TakeEnded(queue, sums.copy).runs, 0);
    }
  }
}

TEST_F(BatchProgramsTest, BatchesTakeTurns) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  const Sums one(session, 5), two(session, 7);
  Sums::Write(two.y, 2);
  uint32_t turns = 0;
  const auto take_turns = [&] {
    one.Submit(session, queue);
    two.Submit(session, queue).back().Wait(kTimeout).Check();
    ++turns;
  };
  ASSERT_TRUE(Eventually([&] {
    take_turns();
    return TakeEnded(queue, one.copy).runs == 2;
  }));
  for (int i = 0; i < 20; ++i) take_turns();
  EXPECT_EQ(TakeEnded(queue, one.copy).runs, 2 * 20);
  EXPECT_EQ(one.X(), static_cast<float>(5 * turns));
  EXPECT_EQ(two.X(), static_cast<float>(14 * turns));
}

TEST_F(BatchProgramsTest, EveryTicketIsReachedAndMayBeWaitedFor) {
  const Session session = daemon_.Connect(), other = daemon_.Connect();
  Queue queue = session.CreateQueue().value(), behind = session.CreateQueue().value();
  Queue elsewhere = other.CreateQueue().value();
  const Sums sums(session), more(other);
  const Buffer seen = session.Allocate(kBytes).value();
  float ended = 0;
  ASSERT_TRUE(BecomesARun(queue, sums.copy, [&] {
    sums.Run(session, queue);
    ended += static_cast<float>(sums.sums);
  }));
  for (int i = 0; i < 20; ++i) {
    const UserTimeline gate = session.CreateUserTimeline().value();
    const std::vector<Ticket> tickets = sums.Submit(session, queue, {.waits = {gate.At(1)}});
    // Of the run, as long as it has not ended: waits for its last value.
    const Ticket read =
        behind.Copy({.src = sums.x, .dst = seen, .bytes = kBytes}, {.waits = {tickets[1]}});
    const Ticket far = more.Add(elsewhere, {.waits = {tickets[2]}});
    for (const Ticket& ticket : tickets) EXPECT_FALSE(ticket.Done());
    EXPECT_FALSE(read.Done());
    gate.Signal(1).Check();
    for (const Ticket& ticket : tickets) EXPECT_TRUE(ticket.Wait(kTimeout).ok());
    EXPECT_TRUE(read.Wait(kTimeout).ok());
    EXPECT_TRUE(far.Wait(kTimeout).ok());
    ended += static_cast<float>(sums.sums);
    EXPECT_EQ(Sums::Read(seen), ended);
    EXPECT_EQ(sums.X(), ended);
  }
  EXPECT_EQ(TakeEnded(queue, sums.copy).ops, 3 * 20) << "a run, a copy and a sum each time";
  // The queue goes on counting from the batch's last ticket.
  const uint64_t last = queue.last().get().value;
  const Ticket next = sums.Add(queue);
  EXPECT_EQ(next.get().value, last + 1);
  EXPECT_TRUE(next.Wait(kTimeout).ok());
}

TEST_F(BatchProgramsTest, MemoryIsGivenBackWhenItIsFreed) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  for (int i = 0; i < 5; ++i) {
    const Sums sums(session);
    ASSERT_TRUE(BecomesARun(queue, sums.copy, [&] { sums.Run(session, queue); }));
    ASSERT_EQ(ProgramsOf(session).size(), 1u);
    sums.Submit(session, queue);  // which may still run
  }
  EXPECT_TRUE(Eventually([&] { return used(Resource::kBuffers) == 0; }))
      << used(Resource::kBuffers) << " buffers, " << used(Resource::kProgramOps) << " program ops";
  EXPECT_TRUE(Eventually([&] { return used(Resource::kProgramOps) == 0; }));
  EXPECT_TRUE(queue.last().Wait(kTimeout).ok());
}

TEST_F(BatchProgramsTest, WhatABatchReadsMayBeSealed) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  for (int i = 0; i < 5; ++i) {
    Sums sums(session);
    uint32_t batches = 0;
    ASSERT_TRUE(BecomesARun(queue, sums.copy, [&] {
      sums.Run(session, queue);
      ++batches;
    }));
    sums.y.Seal().Check();
    ASSERT_TRUE(BecomesARun(queue, sums.copy, [&] {
      sums.Run(session, queue);
      ++batches;
    }));
    EXPECT_EQ(sums.X(), static_cast<float>(batches * sums.sums));
  }
}

TEST_F(BatchProgramsTest, WhatCannotBeAProgramStaysSingleOps) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value(), other = session.CreateQueue().value();
  const Communicator group = session.Join({.name = "one", .ranks = 1}).value();
  const Sums sums(session);
  TakeEnded(queue, sums.copy);
  uint32_t batches = 0;
  for (int i = 0; i < 20; ++i) {
    {
      const Batch batch = session.BeginBatch().value();
      for (uint32_t op = 0; op < sums.sums; ++op) sums.Add(queue).submit_status().Check();
      queue.Barrier(group).submit_status().Check();
    }
    Ticket before = queue.last();
    {
      const Batch batch = session.BeginBatch().value();
      for (uint32_t op = 0; op < sums.sums; ++op)
        before = sums.Add(op % 2 == 0 ? other : queue, {.waits = {before}});
    }
    before.Wait(kTimeout).Check();
    batches += 2;
  }
  EXPECT_EQ(sums.X(), static_cast<float>(batches * sums.sums));
  EXPECT_EQ(TakeEnded(queue, sums.copy).runs, 0);
  EXPECT_TRUE(ProgramsOf(session).empty());
}

TEST_F(BatchProgramsTest, AnInvalidOpFailsByItselfEachTime) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue().value();
  const Sums sums(session);
  std::string sentence;
  for (int i = 0; i < 20; ++i) {
    std::vector<Ticket> tickets;
    {
      const Batch batch = session.BeginBatch().value();
      for (uint32_t op = 0; op < 4; ++op) tickets.push_back(sums.Add(queue));
      tickets.push_back(queue.Copy({.src = sums.x, .dst = sums.y, .bytes = 2 * kBytes}));
      tickets.push_back(sums.Add(queue));
    }
    for (size_t op = 0; op < tickets.size(); ++op) {
      const Status status = tickets[op].Wait(kTimeout);
      EXPECT_EQ(status.code(), op == 4 ? CONCERT_INVALID_ARGUMENT : CONCERT_OK) << op;
      if (op != 4) continue;
      if (i == 0) sentence = status.message();
      EXPECT_EQ(status.message(), sentence);
    }
  }
  EXPECT_EQ(sums.X(), 20.f * 5);
  EXPECT_EQ(TakeEnded(queue, sums.copy).runs, 0);
}

// GEMMs that follow one another, of matrices with `side` columns.
struct GemmChain {
  static constexpr uint32_t kRows = 16;

  GemmChain(const Session& session, uint32_t side)
      : session(session),
        queue(session.CreateQueue().value()),
        x(session.Allocate(uint64_t{kRows} * side * 2).value()),
        y(session.Allocate(uint64_t{kRows} * side * 2).value()),
        w(session.Allocate(uint64_t{side} * side * 2).value()),
        side(side) {}
  void Run() {
    Batch batch = session.BeginBatch().value();
    for (int op = 0; op < 6; ++op) {
      const bool even = op % 2 == 0;
      queue.Gemm({.m = kRows, .n = side, .k = side, .a = even ? x : y, .w = w, .d = even ? y : x})
          .submit_status()
          .Check();
    }
    batch.End().Check();
    queue.last().Wait(kTimeout).Check();
  }

  const Session& session;
  Queue queue;
  Buffer x, y, w;
  const uint32_t side;
};
// The step kernel takes K in multiples of 64.
constexpr uint32_t kSideForGraphs = 16, kSideForSteps = 64;

// GEMMs of several queues go together in one launch, which runs of programs do not.
TEST_F(BatchProgramsTest, ChainsOfGemmsAreRunsOnlyWhileTheirQueueIsAlone) {
  const Session session = daemon_.Connect(), other = daemon_.Connect();
  GemmChain chain(session, kSideForGraphs);
  Queue others = other.CreateQueue().value(), second = session.CreateQueue().value();
  const Sums sums(other), its(session);
  for (const auto& [of, beside] : {std::pair(&sums, &others), std::pair(&its, &second)}) {
    ASSERT_TRUE(BecomesARun(chain.queue, chain.x, [&] { chain.Run(); }))
        << "the others have nothing to do, or not any more";
    // The first chain may be one: from its end on the company is known. Nothing else comes between,
    // since a queue that idles for 20 ms is none.
    const auto in_company = [&, of = of, beside = beside] {
      for (int round = 0; round < 3; ++round) {
        of->Add(*beside).Wait(kTimeout).Check();
        chain.Run();
      }
      return TakeEnded(chain.queue, chain.x).runs <= 1;
    };
    EXPECT_TRUE(Eventually(in_company)) << "both are at work";
  }
}

class StepChainsTest : public BatchProgramsTest {
 protected:
  // Of three of each, by turns; before each turn `first`.
  template <typename First>
  int RunsOfSix(GemmChain& one, GemmChain& two, First first) {
    for (int round = 0; round < 3; ++round) {
      first();
      one.Run();
      two.Run();
    }
    return TakeEnded(one.queue, one.x).runs;
  }
  int RunsOfSix(GemmChain& one, GemmChain& two) {
    return RunsOfSix(one, two, [] {});
  }
};

// Neither keeps the other from it by its single ops, of which there are some until then; whoever
// has other ops does.
TEST_F(StepChainsTest, AreRunsBesideEachOther) {
  const Session session = daemon_.Connect(), twin = daemon_.Connect(), other = daemon_.Connect();
  GemmChain one(session, kSideForSteps), two(twin, kSideForSteps);
  Queue others = other.CreateQueue().value();
  const Sums sums(other);
  const auto in_company_of_ops = [&] { sums.Add(others).Wait(kTimeout).Check(); };
  EXPECT_TRUE(Eventually([&] { return RunsOfSix(one, two) == 6; })) << "there are only runs";
  EXPECT_TRUE(Eventually([&] { return RunsOfSix(one, two, in_company_of_ops) <= 1; }))
      << "there are single ops";
  EXPECT_TRUE(Eventually([&] { return RunsOfSix(one, two) == 6; })) << "not any more";
}

// Their runs would follow one another, and their single ops go together.
TEST_F(StepChainsTest, ButNotBesideAnotherQueueOfTheirSession) {
  const Session session = daemon_.Connect();
  GemmChain one(session, kSideForSteps), two(session, kSideForSteps);
  ASSERT_TRUE(BecomesARun(one.queue, one.x, [&] { one.Run(); }));
  ASSERT_TRUE(BecomesARun(two.queue, two.x, [&] { two.Run(); }));
  EXPECT_TRUE(Eventually([&] { return RunsOfSix(one, two) <= 1; }));
}

TEST_F(BatchProgramsTest, ThreadsShareARingAndEachGetsItsOwn) {
  constexpr int kThreads = 4, kBatches = 300;
  const Session session = daemon_.Connect();
  std::vector<float> sums(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Queue queue = session.CreateQueue().value();
      const Sums mine(session, 4 + static_cast<uint32_t>(i));
      for (int batch = 0; batch < kBatches; ++batch) mine.Run(session, queue);
      sums[static_cast<size_t>(i)] = mine.X();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i)
    EXPECT_EQ(sums[static_cast<size_t>(i)], static_cast<float>(kBatches * (4 + i)));
}

TEST_F(BatchProgramsTest, ASessionThatEndsLeavesNothing) {
  for (int i = 0; i < 10; ++i) {
    Session session = daemon_.Connect();
    Queue queue = session.CreateQueue().value();
    const Sums sums(session);
    // With a registration that was just sent, among others.
    for (int batch = 0; batch < 3 + i % 3; ++batch) sums.Submit(session, queue);
    if (i % 2 == 0) session = Session();  // before what it has made
  }
}

// What libconcert would not send.
class CoveredTicketsTest : public BatchProgramsTest {
 protected:
  CoveredTicketsTest()
      : BatchProgramsTest({.gpus = 1, .wait_timeout = std::chrono::milliseconds(50)}) {
    EXPECT_TRUE(client_->Hello());
    queue_ = client_->CreateQueue();
  }
  void TearDown() override {
    client_.reset();
    BatchProgramsTest::TearDown();
  }
  concert_descriptor Run(uint64_t ticket, uint32_t covered) const {
    concert_descriptor run{};
    run.kind = CONCERT_OP_PROGRAM;
    run.queue = queue_;
    run.ticket = ticket;
    run.body.program.program = 99;  // none
    run.body.program.covered = covered;
    return run;
  }

  // Why the session ends of one that sends this first.
  std::string WhyClosed(uint64_t ticket, uint32_t covered) {
    RawClient client(daemon_.socket());
    EXPECT_TRUE(client.Hello());
    concert_descriptor run = Run(ticket, covered);
    run.queue = client.CreateQueue();
    EXPECT_TRUE(client.Push(run));
    return client.WaitForClosed();
  }

  std::optional<RawClient> client_{daemon_.socket()};
  uint32_t queue_ = 0;
};

TEST_F(CoveredTicketsTest, ARunTakesTheTicketsThatItSays) {
  ASSERT_TRUE(client_->Push(Run(10, 9)));
  ASSERT_TRUE(client_->WaitForTimeline(queue_, 10));
  const std::optional<concert_completion> failed = client_->NextCompletion();
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->ticket, 10u);
  EXPECT_EQ(failed->covered, 9u);
  EXPECT_EQ(failed->status, CONCERT_ABI_NOT_FOUND);
  ASSERT_TRUE(client_->Push(Run(11, 0)));
  ASSERT_TRUE(client_->WaitForTimeline(queue_, 11));
  EXPECT_EQ(client_->NextCompletion()->covered, 0u);
}

TEST_F(CoveredTicketsTest, OthersEndTheSession) {
  for (const auto& [ticket, covered] : std::vector<std::pair<uint64_t, uint32_t>>{
           {10, 8}, {10, 10}, {1, 1}, {10'001, 10'000}, {0, ~0u}, {uint64_t{1} << 32, ~0u}}) {
    EXPECT_NE(WhyClosed(ticket, covered).find(std::to_string(ticket)), std::string::npos)
        << ticket << " covers " << covered;
  }
}

TEST_F(CoveredTicketsTest, ARunThatWaitsForWhatItCoversWaitsInVain) {
  const uint32_t buffer = client_->AllocateBuffer(64);
  concert_descriptor copy{};
  copy.kind = CONCERT_OP_COPY;
  copy.body.copy.src.buffer = copy.body.copy.dst.buffer = buffer;
  copy.body.copy.dst.offset = 32;
  copy.body.copy.bytes = 8;
  const concert_program_reply program =
      client_->CreateProgram({}, {&copy, 1}, CONCERT_PROGRAM_OF_BATCH);
  ASSERT_EQ(program.reply.status, 0u) << program.reply.message;
  concert_descriptor run = Run(10, 9);
  run.body.program.program = program.program;
  run.wait_count = 1;
  run.waits[0] = {.timeline = CONCERT_TIMELINE_ID(client_->session(), queue_), .value = 5};
  ASSERT_TRUE(client_->Push(run));
  ASSERT_TRUE(client_->WaitForTimeline(queue_, 10));
  EXPECT_EQ(client_->NextCompletion()->status, CONCERT_ABI_DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace concert::test
