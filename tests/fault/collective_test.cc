// Ranks that disagree, fail, are late or leave: every rank gets an error that says who, and none
// hangs.
#include <string>
#include <vector>

#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

// Ranks 0 to 2 of one communicator, on alternating GPUs.
class CollectiveTest : public FaultTest {
 protected:
  static constexpr uint32_t kRanks = 3;
  static constexpr uint64_t kCount = 60;

  struct Rank {
    Session session;
    Queue queue;
    Buffer buffer;
    std::optional<Communicator> group;
  };

  explicit CollectiveTest(milliseconds timeout = std::chrono::hours(1))
      : FaultTest({.collective_timeout = timeout}) {}

  void SetUp() override {
    for (uint32_t rank = 0; rank < kRanks; ++rank) AddRank(rank);
  }
  void AddRank(uint32_t rank) {
    const uint32_t gpu = rank % 2;
    Session session = daemon_.Connect("rank " + std::to_string(rank));
    Queue queue = session.CreateQueue({.gpu = gpu}).value();
    Buffer buffer = FloatBuffer(session, kRanks * kCount, 1, gpu);
    Communicator group =
        session.Join({.name = "tp", .rank = rank, .ranks = kRanks, .gpu = gpu}).value();
    ranks_.push_back({std::move(session), std::move(queue), std::move(buffer), std::move(group)});
  }
  void TearDown() override {
    ranks_.clear();
    FaultTest::TearDown();
  }

  Ticket Reduce(uint32_t rank, CollectiveOp op = {}) {
    Rank& r = ranks_[rank];
    op.data = op.data.buffer == nullptr ? Slice(r.buffer) : op.data;
    if (op.count == 0) op.count = kCount;
    op.dtype = op.dtype == kBf16 ? kFp32 : op.dtype;
    return r.queue.AllReduce(*r.group, op);
  }
  void ExpectNextOpRuns() {
    std::vector<Ticket> tickets;
    for (uint32_t rank = 0; rank < kRanks; ++rank) tickets.push_back(Reduce(rank));
    for (const Ticket& ticket : tickets) EXPECT_EQ(Outcome(ticket), "OK");
  }

  std::vector<Rank> ranks_;
};

TEST_F(CollectiveTest, EveryKindOfDisagreementReachesEveryRank) {
  const std::vector<std::function<Ticket(Rank&)>> others = {
      [](Rank& r) {
        return r.queue.AllReduce(*r.group, {.data = r.buffer, .count = kCount - 1, .dtype = kFp32});
      },
      [](Rank& r) {
        return r.queue.AllReduce(*r.group, {.data = r.buffer, .count = kCount, .dtype = kFp16});
      },
      [](Rank& r) {
        return r.queue.AllReduce(
            *r.group, {.data = r.buffer, .count = kCount, .dtype = kFp32, .reduction = kMax});
      },
      [](Rank& r) {
        return r.queue.Broadcast(*r.group, {.data = r.buffer, .count = kCount, .dtype = kFp32});
      },
      [](Rank& r) { return r.queue.Barrier(*r.group); },
  };
  for (size_t i = 0; i < others.size(); ++i) {
    SCOPED_TRACE(i);
    const Ticket first = Reduce(0), odd = others[i](ranks_[1]);
    const auto disagree = AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("all ranks must agree"));
    EXPECT_THAT(Outcome(first), disagree);
    EXPECT_THAT(Outcome(odd), disagree);
    EXPECT_THAT(Outcome(Reduce(2)), disagree);  // comes late
  }
  ExpectNextOpRuns();
}

TEST_F(CollectiveTest, DisagreementAboutTheRoot) {
  std::vector<Ticket> tickets;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    Rank& r = ranks_[rank];
    tickets.push_back(r.queue.Broadcast(
        *r.group, {.data = r.buffer, .count = kCount, .dtype = kFp32, .root = rank / 2}));
  }
  for (const Ticket& ticket : tickets)
    EXPECT_THAT(Outcome(ticket), HasSubstr("all ranks must agree"));
  ExpectNextOpRuns();
}

TEST_F(CollectiveTest, ARanksOwnBadPartFailsTheOthersAtOnce) {
  const Ticket zero = Reduce(0), two = Reduce(2);
  const Ticket bad = Reduce(1, {.data = {ranks_[1].buffer, 1 << 20}});
  EXPECT_THAT(Outcome(bad), HasSubstr("at offset 1048576"));
  for (const Ticket& ticket : {zero, two})
    EXPECT_THAT(Outcome(ticket), HasSubstr("failed on rank 1 before it could start"));
  ExpectNextOpRuns();
}

TEST_F(CollectiveTest, APartWithABadHeaderCountsAndFailsTheOthers) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  const Communicator group = session.Join({.name = "raw pair", .rank = 0, .ranks = 2}).value();
  RawClient raw(daemon_.socket());
  ASSERT_TRUE(raw.Hello());
  const uint32_t raw_queue = raw.CreateQueue(), handle = raw.Join("raw pair", 1, 2);
  const Ticket refused = queue.Barrier(group);
  concert_descriptor bad = MakeBarrier(raw_queue, 1, handle, 0);
  bad.flags = 1;
  ASSERT_TRUE(raw.Push(bad));
  EXPECT_THAT(Outcome(refused), HasSubstr("failed on rank 1"));
  const Ticket fine = queue.Barrier(group);
  ASSERT_TRUE(raw.Push(MakeBarrier(raw_queue, 2, handle, 1)));
  EXPECT_EQ(Outcome(fine), "OK");
  // A sequence number that was used already.
  ASSERT_TRUE(raw.Push(MakeBarrier(raw_queue, 3, handle, 1)));
  ASSERT_TRUE(raw.WaitForTimeline(raw_queue, 3));
  EXPECT_THAT(Render(raw.NextCompletion().value()), HasSubstr("reserved"));
  EXPECT_THAT(Render(raw.NextCompletion().value()), HasSubstr("sequence is 1"));
}

TEST_F(CollectiveTest, RanksMayNotShareMemory) {
  const Session session = daemon_.Connect();
  Queue one = session.CreateQueue({}).value(), two = session.CreateQueue({}).value();
  const Communicator c0 = session.Join({.name = "self", .rank = 0, .ranks = 2}).value();
  const Communicator c1 = session.Join({.name = "self", .rank = 1, .ranks = 2}).value();
  const Buffer buffer = FloatBuffer(session, 100, 1);
  const Ticket t0 = one.AllReduce(c0, {.data = buffer, .count = 60, .dtype = kFp32});
  const Ticket t1 = two.AllReduce(c1, {.data = {buffer, 160}, .count = 60, .dtype = kFp32});
  for (const Ticket& ticket : {t0, t1})
    EXPECT_THAT(Outcome(ticket), HasSubstr("every rank needs memory of its own"));
}

TEST_F(CollectiveTest, ARankThatLeavesMidwayIsNamed) {
  const Ticket zero = Reduce(0), two = Reduce(2);
  ranks_[1].group.reset();
  for (const Ticket& ticket : {zero, two, Reduce(0)})
    EXPECT_THAT(Outcome(ticket), HasSubstr("CANCELLED: rank 1 left communicator"));
}

TEST_F(CollectiveTest, ARankWhoseSessionEndsIsNamed) {
  const Ticket zero = Reduce(0), mine = Reduce(1);
  ranks_.erase(ranks_.begin() + 1);
  EXPECT_THAT(Outcome(zero), HasSubstr("CANCELLED: rank 1 left communicator"));
}

class LateRankTest : public CollectiveTest {
 protected:
  LateRankTest() : CollectiveTest(milliseconds(50)) {}
};

TEST_F(LateRankTest, AMissingRankIsNamedAndErrsTooWhenItComes) {
  const Ticket zero = Reduce(0), two = Reduce(2);
  for (const Ticket& ticket : {zero, two}) {
    EXPECT_THAT(Outcome(ticket), AllOf(HasSubstr("DEADLINE_EXCEEDED: rank 1 of communicator"),
                                       HasSubstr("did not submit op 0 within 50 ms")));
  }
  EXPECT_THAT(Outcome(Reduce(1)), HasSubstr("did not submit op 0 within 50 ms"));
}

TEST_F(LateRankTest, ARankThatNeverJoinsIsNamed) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  const Communicator lonely = session.Join({.name = "lonely", .rank = 1, .ranks = 2}).value();
  EXPECT_THAT(Outcome(queue.Barrier(lonely)),
              AllOf(HasSubstr("rank 0 of communicator"), HasSubstr("did not join within 50 ms")));
}

}  // namespace
}  // namespace concert::test
