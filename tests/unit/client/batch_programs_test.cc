// Batches that become programs, as the daemon's end of the ring sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/unit/client/submit_fixture.h"

namespace concert {
namespace {

using test::FakeDaemon;

constexpr uint32_t kOps = 4;
constexpr uint32_t kProgram = FakeDaemon::kFirstProgram;

FakeDaemon::Options WithRoom(bool hold_programs = false) {
  FakeDaemon::Options options;
  options.capacity = options.completion_capacity = 256;
  options.hold_programs = hold_programs;
  return options;
}

class BatchProgramsTest : public SubmitTest {
 protected:
  explicit BatchProgramsTest(FakeDaemon::Options options = WithRoom())
      : SubmitTest(std::move(options)) {}

  std::vector<Ticket> Submit(const SubmitOptions& first = {}) {
    return SubmitTo(session_, queue_, copy_, first);
  }
  static std::vector<Ticket> SubmitTo(const Session& session, Queue& queue, const CopyOp& copy,
                                      const SubmitOptions& first = {}) {
    std::vector<Ticket> tickets;
    Batch batch = session.BeginBatch().value();
    for (uint32_t i = 0; i < kOps; ++i) {
      CopyOp op = copy;
      op.bytes += i;
      tickets.push_back(queue.Copy(op, i == 0 ? first : SubmitOptions()));
      tickets.back().submit_status().Check();
    }
    batch.End().Check();
    return tickets;
  }
  // Submits until a batch is a run, whose position it returns.
  uint64_t SubmitUntilRun() {
    const bool is_run = test::Eventually([&] {
      Submit();
      if (last().kind == CONCERT_OP_PROGRAM) return true;
      daemon_.Consume(daemon_.tail());
      return false;
    });
    EXPECT_TRUE(is_run) << "no batch became a run";
    return daemon_.tail() - 1;
  }
  concert_descriptor last() const { return daemon_.descriptor(daemon_.tail() - 1); }
  std::vector<concert_create_program> Registered() const {
    return As<concert_create_program>(CONCERT_CONTROL_CREATE_PROGRAM);
  }
  std::vector<uint32_t> Released() const {
    std::vector<uint32_t> released;
    for (const auto& one : As<concert_release_buffer>(CONCERT_CONTROL_RELEASE_BUFFER))
      released.push_back(one.buffer);
    return released;
  }
  // How many ops or runs of 20 more batches the ring holds.
  uint64_t DescriptorsOfTwenty() {
    const uint64_t before = daemon_.tail();
    for (int i = 0; i < 20; ++i) {
      Submit();
      daemon_.Consume(daemon_.tail());
    }
    return daemon_.tail() - before;
  }

 private:
  template <typename Request>
  std::vector<Request> As(concert_control_type type) const {
    std::vector<Request> requests;
    for (const std::vector<char>& bytes : daemon_.Requests(type))
      std::memcpy(&requests.emplace_back(), bytes.data(), sizeof(Request));
    return requests;
  }
};

TEST_F(BatchProgramsTest, ARunHasTheTicketOfTheBatchsLastOp) {
  SubmitUntilRun();
  const std::vector<concert_create_program> registered = Registered();
  ASSERT_EQ(registered.size(), 1u);
  EXPECT_EQ(registered[0].flags, uint32_t{CONCERT_PROGRAM_OF_BATCH});
  EXPECT_EQ(registered[0].op_count, kOps);
  EXPECT_EQ(registered[0].slot_count, 0u);

  const uint64_t before = daemon_.tail(), ticket = queue_.last().get().value;
  const std::vector<Ticket> tickets = Submit();
  ASSERT_EQ(daemon_.tail(), before + 1);
  const concert_descriptor run = last();
  EXPECT_EQ(run.sequence, before + 1);
  EXPECT_EQ(run.kind, CONCERT_OP_PROGRAM);
  EXPECT_EQ(run.ticket, ticket + kOps);
  EXPECT_EQ(run.body.program.program, kProgram);
  EXPECT_EQ(run.body.program.covered, kOps - 1);
  concert_descriptor rest = run;
  rest.body.program.program = rest.body.program.covered = 0;
  for (const uint8_t byte : rest.body.raw) EXPECT_EQ(byte, 0) << "nothing of the op it was";
  for (uint32_t i = 0; i < kOps; ++i) EXPECT_EQ(tickets[i].get().value, ticket + 1 + i);

  queue_.Copy(copy_).submit_status().Check();
  EXPECT_EQ(last().ticket, ticket + kOps + 1);
  EXPECT_EQ(last().sequence, before + 2);
}

TEST_F(BatchProgramsTest, AFailedRunIsTheOutcomeOfEachOfItsOps) {
  SubmitUntilRun();
  const Ticket before = queue_.Copy(copy_);
  const std::vector<Ticket> tickets = Submit();
  const Ticket after = queue_.Copy(copy_);
  const uint64_t ticket = tickets.back().get().value;
  daemon_.Reach(0, before.get().value);
  for (const Ticket& one : tickets) EXPECT_FALSE(one.Done());
  daemon_.Fail(0, ticket, CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DRAINING, {}, 0, kOps - 1);
  EXPECT_TRUE(before.Wait().ok());
  for (const Ticket& one : tickets) EXPECT_EQ(one.Wait().code(), CONCERT_INTERNAL);
  daemon_.Reach(0, after.get().value);
  EXPECT_TRUE(after.Wait().ok());
}

TEST_F(BatchProgramsTest, WhatTheFirstOpWaitsForTheRunWaitsFor) {
  const UserTimeline timeline = session_.CreateUserTimeline().value();
  SubmitUntilRun();
  Submit({.waits = {timeline.At(41)}});
  const concert_descriptor run = last();
  EXPECT_EQ(run.kind, CONCERT_OP_PROGRAM);
  ASSERT_EQ(run.wait_count, 1u);
  EXPECT_EQ(run.waits[0].value, 41u);
}

class HeldProgramsTest : public BatchProgramsTest {
 protected:
  HeldProgramsTest() : BatchProgramsTest(WithRoom(/*hold_programs=*/true)) {}
};

TEST_F(HeldProgramsTest, NobodyWaitsForTheAnswer) {
  EXPECT_EQ(DescriptorsOfTwenty(), 20 * kOps);
  // Other requests are answered behind it, and bring its answer along.
  daemon_.AnswerPrograms();
  const Buffer other = session_.Allocate(64).value();
  Submit();  // takes it
  EXPECT_EQ(DescriptorsOfTwenty(), 20u);
  EXPECT_EQ(Registered().size(), 1u);
}

TEST_F(BatchProgramsTest, NorForAnotherThreadsCall) {
  daemon_.Hold();
  std::thread other([&] { session_.Allocate(64).value(); });
  daemon_.AwaitHeld(1);
  EXPECT_EQ(DescriptorsOfTwenty(), 20 * kOps) << "batches wait, or are lost";
  EXPECT_TRUE(Registered().empty());
  daemon_.Answer();
  other.join();
  SubmitUntilRun();  // it is asked for when it comes again
}

TEST_F(BatchProgramsTest, ARefusalIsNoErrorAndIsRemembered) {
  daemon_.AnswerProgramsWith(CONCERT_ABI_RESOURCE_EXHAUSTED);
  EXPECT_EQ(DescriptorsOfTwenty(), 20 * kOps);
  const Buffer other = session_.Allocate(64).value();  // answered behind it
  daemon_.AnswerProgramsWith(CONCERT_ABI_OK);
  EXPECT_EQ(DescriptorsOfTwenty(), 20 * kOps);
  EXPECT_EQ(Registered().size(), 1u);
}

TEST_F(BatchProgramsTest, InCompanyTheDaemonMayWantSingleOps) {
  daemon_.AnswerProgramsWith(CONCERT_ABI_OK, CONCERT_PROGRAM_WHILE_ALONE);
  SubmitUntilRun();
  constexpr uint32_t kRuns = CONCERT_COMPANY, kOfOps = CONCERT_COMPANY | CONCERT_COMPANY_OF_OPS;
  for (const uint32_t company : {kRuns, kOfOps}) {
    daemon_.SetCompany(company);
    EXPECT_EQ(DescriptorsOfTwenty(), 20 * kOps) << company;
    EXPECT_EQ(daemon_.descriptor(daemon_.tail() - 1).flags, 0);
  }
  daemon_.SetCompany(0);
  EXPECT_EQ(DescriptorsOfTwenty(), 20u);
}

TEST_F(BatchProgramsTest, OrOnlyInCompanyOfOpsWhichThenSayThatTheyCouldBeARun) {
  daemon_.AnswerProgramsWith(CONCERT_ABI_OK,
                             CONCERT_PROGRAM_WHILE_ALONE | CONCERT_PROGRAM_BESIDE_RUNS);
  SubmitUntilRun();
  daemon_.SetCompany(CONCERT_COMPANY);
  EXPECT_EQ(DescriptorsOfTwenty(), 20u);
  EXPECT_EQ(daemon_.descriptor(daemon_.tail() - 1).flags, 0) << "it is one";
  daemon_.SetCompany(CONCERT_COMPANY | CONCERT_COMPANY_OF_OPS);
  EXPECT_EQ(DescriptorsOfTwenty(), 20 * kOps);
  for (uint64_t op = 1; op <= kOps; ++op) {
    EXPECT_EQ(daemon_.descriptor(daemon_.tail() - op).flags, CONCERT_OP_COULD_BE_RUN);
  }
  daemon_.SetCompany(0);
  EXPECT_EQ(DescriptorsOfTwenty(), 20u);
  EXPECT_EQ(daemon_.descriptor(daemon_.tail() - 1).flags, 0);
}

TEST_F(BatchProgramsTest, OtherProgramsAreForCompanyToo) {
  daemon_.SetCompany(CONCERT_COMPANY | CONCERT_COMPANY_OF_OPS);
  SubmitUntilRun();
  EXPECT_EQ(DescriptorsOfTwenty(), 20u);
}

TEST_F(BatchProgramsTest, AProgramGoesBeforeABufferThatItNames) {
  SubmitUntilRun();
  { const Buffer other = session_.Allocate(64).value(); }
  EXPECT_THAT(Released(), testing::ElementsAre(3));
  EXPECT_EQ(DescriptorsOfTwenty(), 20u);
  y_ = Buffer();
  EXPECT_THAT(Released(), testing::ElementsAre(3, kProgram, 2));
}

TEST_F(HeldProgramsTest, AProgramThatIsBeingMadeGoesBeforeABufferThatItNames) {
  DescriptorsOfTwenty();
  daemon_.AnswerPrograms();
  y_ = Buffer();
  EXPECT_THAT(Released(), testing::ElementsAre(kProgram, 2));
}

TEST_F(BatchProgramsTest, AProgramGoesBeforeItsBufferIsSealedAndWithItsQueue) {
  SubmitUntilRun();
  x_.Seal().Check();
  EXPECT_THAT(Released(), testing::ElementsAre(kProgram));
  SubmitUntilRun();
  queue_ = Queue();
  EXPECT_THAT(Released(), testing::ElementsAre(kProgram, kProgram + 1));
}

TEST_F(BatchProgramsTest, ProgramsGiveWayToWhatTheClientHasNoRoomFor) {
  EXPECT_EQ(session_.Allocate(uint64_t{1} << 40).status().code(), CONCERT_RESOURCE_EXHAUSTED);
  SubmitUntilRun();  // none was in the way
  EXPECT_EQ(session_.Allocate(uint64_t{1} << 40).status().code(), CONCERT_RESOURCE_EXHAUSTED);
  EXPECT_THAT(Released(), testing::ElementsAre(kProgram));
  EXPECT_EQ(DescriptorsOfTwenty(), 20 * kOps) << "it would be in the way again";
}

TEST_F(BatchProgramsTest, ADaemonThatDiesIsAnErrorAsEver) {
  SubmitUntilRun();
  daemon_.Die();
  EXPECT_EQ(Submit().back().Wait().code(), CONCERT_UNAVAILABLE);
  Batch batch = session_.BeginBatch().value();
  EXPECT_TRUE(batch.End().ok());
}

TEST_F(HeldProgramsTest, AnAnswerThatNeverComesHoldsNobodyUp) {
  DescriptorsOfTwenty();
  daemon_.Die();
  EXPECT_EQ(DescriptorsOfTwenty(), 20 * kOps);
  y_ = Buffer();
}

TEST_F(BatchProgramsTest, ABatchThatWasHandedOverInPartsIsNone) {
  for (int i = 0; i < 20; ++i) {
    Batch batch = session_.BeginBatch().value();
    Ticket ticket;
    for (uint32_t op = 0; op < 2 * kOps; ++op) {
      ticket = queue_.Copy(copy_);
      if (op == 1) {
        EXPECT_FALSE(ticket.Done());
      }
    }
    batch.End().Check();
    EXPECT_EQ(last().kind, CONCERT_OP_COPY);
    daemon_.Consume(daemon_.tail());
  }
  EXPECT_TRUE(Registered().empty());
}

TEST_F(BatchProgramsTest, ItCanBeTurnedOff) {
  test::FakeDaemon daemon(WithRoom());
  const auto registrations = [](const test::FakeDaemon& of) {
    return of.Requests(CONCERT_CONTROL_CREATE_PROGRAM).size();
  };
  const auto submit_to = [](const Session& session) {
    Queue queue = session.CreateQueue().value();
    const Buffer buffer = session.Allocate(64).value();
    for (int i = 0; i < 20; ++i) SubmitTo(session, queue, {.src = buffer, .dst = buffer});
  };
  submit_to(Session::Connect({.socket_path = daemon.path(), .batches = Batches::kOps}).value());
  EXPECT_EQ(registrations(daemon), 0u);

  test::FakeDaemon second(WithRoom());
  setenv("CONCERT_BATCHES", "ops", 1);
  submit_to(Session::Connect({.socket_path = second.path()}).value());
  EXPECT_EQ(registrations(second), 0u);

  test::FakeDaemon third(WithRoom());
  submit_to(Session::Connect({.socket_path = third.path(), .batches = Batches::kPrograms}).value());
  EXPECT_EQ(registrations(third), 1u) << "the option overrides the environment";

  setenv("CONCERT_BATCHES", "graphs", 1);
  EXPECT_EQ(Session::Connect({.socket_path = daemon.path()}).status().message(),
            "CONCERT_BATCHES is 'graphs'; it must be 'programs' or 'ops'");
  unsetenv("CONCERT_BATCHES");
}

TEST(OldDaemonTest, KnowsNoProgramsOfBatches) {
  FakeDaemon::Options options = WithRoom();
  options.edit_hello = [](concert_hello_reply& reply) {
    reply.features &= ~CONCERT_FEATURE_BATCH_PROGRAMS;
  };
  FakeDaemon daemon(options);
  const Session session = Session::Connect({.socket_path = daemon.path()}).value();
  Queue queue = session.CreateQueue().value();
  const Buffer buffer = session.Allocate(64).value();
  for (int i = 0; i < 20; ++i) {
    Batch batch = session.BeginBatch().value();
    for (uint32_t op = 0; op < kOps; ++op) {
      queue.Copy({.src = buffer, .dst = {buffer, 32}, .bytes = 8}).submit_status().Check();
    }
  }
  EXPECT_EQ(daemon.tail(), 20 * kOps);
  EXPECT_TRUE(daemon.Requests(CONCERT_CONTROL_CREATE_PROGRAM).empty());
}

}  // namespace
}  // namespace concert
