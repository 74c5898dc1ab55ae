#include "daemon/sched/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>

namespace concert::daemon {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr uint32_t kCommunicator = 5;
constexpr uint64_t kMaxRefusals = 8;

// With the client's name for kCommunicator.
std::string AsTheClientReadsIt(const kernels::Failure& failure) {
  char text[256];
  const auto name_of = [](const void*, char form, uint64_t number) -> const char* {
    return form == 'c' && number == kCommunicator ? "communicator 'tp'" : nullptr;
  };
  concert_render_named_message(failure.message, failure.args.data(), name_of, nullptr, text,
                               sizeof(text));
  return text;
}

class RendezvousTest : public testing::Test {
 protected:
  RendezvousTest() : rendezvous_({.timeout_ns = 1'000'000}) {}

  static Limits MakeLimits() {
    Limits limits;
    limits[Resource::kRefusals].per_user = kMaxRefusals;
    return limits;
  }
  void Join(uint32_t rank, uint32_t ranks, uint32_t communicator = kCommunicator) {
    ASSERT_TRUE(account_.TryCharge(Resource::kMemberships));
    rendezvous_.Join(communicator, rank, ranks, account_,
                     {.session = 100 + rank, .gpu = static_cast<int>(rank)});
  }
  void JoinAll(uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) Join(rank, ranks);
  }
  uint64_t refusals() const { return account_.own().of(Resource::kRefusals); }

  RankPart MakePart(uint32_t rank, uint64_t sequence, uint16_t kind = CONCERT_OP_ALL_REDUCE,
                    uint64_t count = 256) {
    Op& op = ops_.emplace_back();
    op.kind = kind;
    op.collective = {.communicator = kCommunicator,
                     .sequence = sequence,
                     .count = count,
                     .src = 0x10000 * (rank + 1),
                     .dst = 0x10000 * (rank + 1) + 0x8000,
                     .src_bytes = 1024,
                     .dst_bytes = 1024,
                     .dtype = kernels::Dtype::kFp32};
    return {.gpu = static_cast<int>(rank), .op = &op, .id = static_cast<OpId>(ops_.size())};
  }
  void Arrive(uint32_t rank, const RankPart& part) {
    rendezvous_.Arrive(kCommunicator, rank, part, now_, out_);
  }

  void Leave(uint32_t rank, uint32_t communicator = kCommunicator) {
    rendezvous_.Leave(communicator, rank);
    EXPECT_FALSE(rendezvous_.LetGo(kMany, out_));
  }

  // How many ranks each part was told of, by its id, since the last call.
  using Told = std::map<OpId, int>;
  Told News() {
    Told told;
    out_.news.clear();
    rendezvous_.TellNews(out_);
    for (const Rendezvous::News& news : out_.news) {
      EXPECT_TRUE(told.emplace(news.part.id, news.ranks_there).second) << "told twice";
    }
    return told;
  }

  static constexpr uint32_t kMany = 1000;
  Accounts accounts_{MakeLimits()};
  Account& account_ = accounts_.Of(1000);
  Rendezvous rendezvous_;
  Rendezvous::Outcomes out_;
  std::deque<Op> ops_;
  policies::Time now_ = 0;
};

TEST_F(RendezvousTest, MatchesInRankOrderWhateverTheOrderOfArrival) {
  JoinAll(3);
  const RankPart p0 = MakePart(0, 0), p1 = MakePart(1, 0), p2 = MakePart(2, 0);
  Arrive(2, p2);
  Arrive(0, p0);
  EXPECT_THAT(out_.matched, IsEmpty());
  EXPECT_TRUE(rendezvous_.waiting());
  Arrive(1, p1);
  ASSERT_THAT(out_.matched, SizeIs(1));
  ASSERT_THAT(out_.PartsOf(out_.matched[0]), SizeIs(3));
  EXPECT_EQ(out_.PartsOf(out_.matched[0])[0].id, p0.id);
  EXPECT_EQ(out_.PartsOf(out_.matched[0])[1].id, p1.id);
  EXPECT_EQ(out_.PartsOf(out_.matched[0])[2].id, p2.id);
  EXPECT_FALSE(rendezvous_.waiting());
}

TEST_F(RendezvousTest, SequencesMayMatchOutOfOrder) {
  JoinAll(2);
  Arrive(0, MakePart(0, 0));
  Arrive(0, MakePart(0, 1));
  Arrive(1, MakePart(1, 1));
  ASSERT_THAT(out_.matched, SizeIs(1));
  EXPECT_EQ(out_.PartsOf(out_.matched[0])[0].op->collective.sequence, 1u);
}

TEST_F(RendezvousTest, DisagreementFailsEveryRankTheLateOneToo) {
  JoinAll(3);
  Arrive(0, MakePart(0, 0));
  Arrive(1, MakePart(1, 0, CONCERT_OP_ALL_GATHER, 128));
  ASSERT_THAT(out_.failed, SizeIs(2));
  EXPECT_EQ(out_.failed[0].failure.ToString(),
            "rank 1 submitted all_gather of 128 elements, rank 0 something else; all ranks must "
            "agree on kind, "
            "dtype, reduction, root and count (op 0)");
  Arrive(2, MakePart(2, 0));
  EXPECT_THAT(out_.failed, SizeIs(3));
  EXPECT_FALSE(rendezvous_.waiting());
  // The next op is unharmed.
  for (uint32_t rank = 0; rank < 3; ++rank) Arrive(rank, MakePart(rank, 1));
  EXPECT_THAT(out_.matched, SizeIs(1));
}

TEST_F(RendezvousTest, NamesTheMissingRank) {
  JoinAll(2);
  Arrive(0, MakePart(0, 0));
  now_ = 999'999;
  rendezvous_.Expire(now_, kMany, out_);
  EXPECT_THAT(out_.failed, IsEmpty());
  now_ = 1'000'000;
  rendezvous_.Expire(now_, kMany, out_);
  ASSERT_THAT(out_.failed, SizeIs(1));
  EXPECT_EQ(out_.failed[0].failure.ToString(),
            "rank 1 of communicator 5 did not submit op 0 within 1 ms");
  // The late rank hears of it too instead of waiting for the others.
  Arrive(1, MakePart(1, 0));
  EXPECT_THAT(out_.failed, SizeIs(2));
}

TEST_F(RendezvousTest, NamesARankThatNeverJoined) {
  Join(0, 2);
  Arrive(0, MakePart(0, 0));
  rendezvous_.Expire(2'000'000, kMany, out_);
  ASSERT_THAT(out_.failed, SizeIs(1));
  EXPECT_EQ(out_.failed[0].failure.ToString(), "rank 1 of communicator 5 did not join within 1 ms");
}

TEST_F(RendezvousTest, ARankThatLeavesFailsWhatIsOpenAndWhatComesLater) {
  JoinAll(2);
  Arrive(0, MakePart(0, 0));
  Leave(1);
  ASSERT_THAT(out_.failed, SizeIs(1));
  EXPECT_EQ(out_.failed[0].failure.ToString(), "rank 1 left communicator 5");
  Arrive(0, MakePart(0, 1));
  EXPECT_THAT(out_.failed, SizeIs(2));
  Leave(0);
  Arrive(0, MakePart(0, 2));
  EXPECT_EQ(out_.failed.back().failure.status, CONCERT_ABI_NOT_FOUND);
}

TEST_F(RendezvousTest, ARefusedPartFailsTheOthersAtOnce) {
  JoinAll(2);
  Arrive(0, MakePart(0, 0));
  rendezvous_.Refuse(kCommunicator, 1, 0, now_, out_);
  ASSERT_THAT(out_.failed, SizeIs(1));
  EXPECT_EQ(out_.failed[0].failure.message, CONCERT_MESSAGE_RANK_REFUSED);
  // Refused before anyone came.
  rendezvous_.Refuse(kCommunicator, 1, 1, now_, out_);
  Arrive(0, MakePart(0, 1));
  EXPECT_THAT(out_.failed, SizeIs(2));
  EXPECT_FALSE(rendezvous_.waiting());
}

TEST_F(RendezvousTest, RanksMayNotShareMemory) {
  JoinAll(2);
  Arrive(0, MakePart(0, 0));
  RankPart part = MakePart(1, 0);
  ops_.back().collective.dst = 0x10000 + 0x8000 + 512;
  Arrive(1, part);
  ASSERT_THAT(out_.failed, SizeIs(2));
  EXPECT_EQ(out_.failed[0].failure.message, CONCERT_MESSAGE_RANKS_SHARE_MEMORY);
}

TEST_F(RendezvousTest, WhatFailedIsForgottenWhenTheLastRankHasCome) {
  JoinAll(3);
  rendezvous_.Refuse(kCommunicator, 1, 0, now_, out_);
  EXPECT_EQ(refusals(), 1u);
  EXPECT_FALSE(rendezvous_.waiting());
  Arrive(0, MakePart(0, 0));
  EXPECT_EQ(refusals(), 1u);
  rendezvous_.Refuse(kCommunicator, 2, 0, now_, out_);
  EXPECT_EQ(refusals(), 0u);
  EXPECT_EQ(rendezvous_.open_count(), 0u);
  // What ran too long is remembered in the same way.
  Arrive(0, MakePart(0, 1));
  rendezvous_.Expire(now_ + 1'000'000, kMany, out_);
  EXPECT_EQ(refusals(), 1u);
  Arrive(1, MakePart(1, 1));
  Arrive(2, MakePart(2, 1));
  EXPECT_EQ(refusals(), 0u);
}

TEST_F(RendezvousTest, ACommunicatorWhoseUserHasNoRefusalsLeftFails) {
  JoinAll(2);
  Join(0, 2, kCommunicator + 1);
  for (uint64_t sequence = 0; sequence < kMaxRefusals - 1; ++sequence)
    rendezvous_.Refuse(kCommunicator, 0, sequence, now_, out_);
  rendezvous_.Refuse(kCommunicator + 1, 0, 0, now_, out_);
  EXPECT_EQ(rendezvous_.open_count(), kMaxRefusals);
  Arrive(1, MakePart(1, kMaxRefusals));  // waits
  rendezvous_.Refuse(kCommunicator, 0, kMaxRefusals - 1, now_, out_);
  EXPECT_FALSE(rendezvous_.LetGo(kMany, out_));
  ASSERT_THAT(out_.failed, SizeIs(1));
  EXPECT_THAT(out_.failed[0].failure.ToString(), testing::HasSubstr("join anew"));
  Arrive(1, MakePart(1, 0));
  EXPECT_EQ(out_.failed.back().failure.message, CONCERT_MESSAGE_TOO_MANY_REFUSALS);
  EXPECT_THAT(AsTheClientReadsIt(out_.failed.back().failure),
              testing::StartsWith("communicator 'tp' is over: "));
  // It holds nothing any more; the other one is as it was.
  EXPECT_EQ(rendezvous_.open_count(), 1u);
  EXPECT_EQ(refusals(), 1u);
  EXPECT_FALSE(rendezvous_.waiting());
}

TEST_F(RendezvousTest, NothingIsHeldOrChargedWhenAllRanksHaveLeft) {
  JoinAll(3);
  Arrive(0, MakePart(0, 0));
  rendezvous_.Refuse(kCommunicator, 1, 1, now_, out_);
  for (uint32_t rank = 0; rank < 3; ++rank) Leave(rank);
  EXPECT_TRUE(account_.unused());
  EXPECT_EQ(rendezvous_.open_count(), 0u);
  EXPECT_FALSE(rendezvous_.waiting());
}

TEST_F(RendezvousTest, WhatWaitedLongestExpiresFirst) {
  JoinAll(2);
  for (uint64_t sequence = 0; sequence < 4; ++sequence) {
    now_ = static_cast<policies::Time>(sequence) * 1000;
    Arrive(0, MakePart(0, sequence));
  }
  Arrive(1, MakePart(1, 1));  // one in the middle starts
  rendezvous_.Expire(1'000'000 + 2000, kMany, out_);
  ASSERT_THAT(out_.failed, SizeIs(2));
  EXPECT_EQ(out_.failed[0].part.op->collective.sequence, 0u);
  EXPECT_EQ(out_.failed[1].part.op->collective.sequence, 2u);
  EXPECT_TRUE(rendezvous_.waiting());
  rendezvous_.Expire(1'000'000 + 3000, kMany, out_);
  EXPECT_FALSE(rendezvous_.waiting());
}

TEST_F(RendezvousTest, NoMoreExpireAtOnceThanAreAskedFor) {
  JoinAll(2);
  for (uint64_t sequence = 0; sequence < 5; ++sequence) Arrive(0, MakePart(0, sequence));
  EXPECT_TRUE(rendezvous_.Expire(1'000'000, 2, out_));
  EXPECT_THAT(out_.failed, SizeIs(2));
  EXPECT_TRUE(rendezvous_.Expire(1'000'000, 2, out_));
  EXPECT_FALSE(rendezvous_.Expire(1'000'000, 2, out_));
  EXPECT_THAT(out_.failed, SizeIs(5));
}

// Each op counts, and so does each part that waits for it.
TEST_F(RendezvousTest, NoMoreIsLetGoOfAtOnceThanIsAskedFor) {
  JoinAll(2);
  Join(0, 2, kCommunicator + 1);
  for (uint64_t sequence = 0; sequence < 3; ++sequence) Arrive(0, MakePart(0, sequence));
  for (uint64_t sequence = 3; sequence < 6; ++sequence)
    rendezvous_.Refuse(kCommunicator, 1, sequence, now_, out_);
  rendezvous_.Leave(kCommunicator, 1);
  rendezvous_.Leave(kCommunicator, 0);  // as the last, so that the communicator is over, too
  rendezvous_.Refuse(kCommunicator + 1, 0, 0, now_, out_);
  rendezvous_.Leave(kCommunicator + 1, 0);
  EXPECT_THAT(out_.failed, IsEmpty());
  EXPECT_EQ(refusals(), 4u);
  EXPECT_TRUE(rendezvous_.LetGo(4, out_));
  EXPECT_THAT(out_.failed, SizeIs(2));
  EXPECT_TRUE(rendezvous_.waiting());
  EXPECT_TRUE(rendezvous_.LetGo(4, out_));
  EXPECT_THAT(out_.failed, SizeIs(3));
  EXPECT_FALSE(rendezvous_.waiting());
  EXPECT_EQ(refusals(), 2u);
  EXPECT_FALSE(rendezvous_.LetGo(4, out_));
  EXPECT_EQ(rendezvous_.open_count(), 0u);
  EXPECT_TRUE(account_.unused());
  JoinAll(2);
  Arrive(0, MakePart(0, 0));
  EXPECT_TRUE(rendezvous_.waiting()) << "nothing is left of the number's last communicator";
}

// Which may take its time: what of it has waited too long by then ends as the rest.
TEST_F(RendezvousTest, ACommunicatorThatIsOverTakesNoMorePartsAndMissesNobody) {
  JoinAll(3);
  for (uint64_t sequence = 0; sequence < 3; ++sequence) Arrive(0, MakePart(0, sequence));
  rendezvous_.Leave(kCommunicator, 2);
  Arrive(1, MakePart(1, 0));
  ASSERT_THAT(out_.failed, SizeIs(1));
  rendezvous_.Refuse(kCommunicator, 1, 1, now_, out_);
  EXPECT_TRUE(rendezvous_.LetGo(2, out_));
  EXPECT_FALSE(rendezvous_.Expire(1'000'000, kMany, out_));
  EXPECT_FALSE(rendezvous_.LetGo(kMany, out_));
  ASSERT_THAT(out_.failed, SizeIs(4));
  for (const Rendezvous::Failed& failed : out_.failed)
    EXPECT_EQ(failed.failure.message, CONCERT_MESSAGE_RANK_LEFT);
  EXPECT_EQ(refusals(), 0u);
}

TEST_F(RendezvousTest, EveryPartThatWaitsHearsOfRanksThatCome) {
  JoinAll(5);
  Arrive(3, MakePart(3, 0));  // part 1
  EXPECT_THAT(News(), IsEmpty()) << "who offers a part knows of it";
  Arrive(0, MakePart(0, 0));  // part 2
  EXPECT_EQ(News(), (Told{{1, 2}, {2, 2}}));
  EXPECT_THAT(News(), IsEmpty());
  Arrive(1, MakePart(1, 1));  // part 3, of another op
  Arrive(1, MakePart(1, 0));
  Arrive(2, MakePart(2, 0));
  EXPECT_EQ(News(), (Told{{1, 4}, {2, 4}, {4, 4}, {5, 4}}));
  Arrive(4, MakePart(4, 0));
  ASSERT_THAT(out_.matched, SizeIs(1));
  EXPECT_THAT(News(), IsEmpty()) << "it has its answer";
}

TEST_F(RendezvousTest, ThereAreNoNewsOfWhatFailed) {
  JoinAll(4);
  const auto two_come = [this](uint64_t sequence) {
    Arrive(0, MakePart(0, sequence));
    Arrive(1, MakePart(1, sequence));
  };
  two_come(0);
  rendezvous_.Refuse(kCommunicator, 2, 0, now_, out_);
  EXPECT_THAT(News(), IsEmpty());
  two_come(1);
  rendezvous_.Expire(now_ + 1'000'000, kMany, out_);
  EXPECT_THAT(News(), IsEmpty());
  two_come(2);
  EXPECT_THAT(News(), SizeIs(2));
  Arrive(2, MakePart(2, 2));
  rendezvous_.Leave(kCommunicator, 3);
  EXPECT_THAT(News(), IsEmpty());
  for (uint32_t rank = 0; rank < 3; ++rank) Leave(rank);
  EXPECT_THAT(News(), IsEmpty());
}

// However many ranks, each op costs a bounded number of messages.
TEST_F(RendezvousTest, NewsOfManyRanksAreFew) {
  constexpr uint32_t kRanks = Rendezvous::kMaxRanks;
  JoinAll(kRanks);
  size_t messages = 0;
  Told told;
  for (uint32_t rank = 0; rank + 1 < kRanks; ++rank) {
    Arrive(rank, MakePart(rank, 0));
    told = News();
    messages += told.size();
  }
  EXPECT_LE(messages, 12 * kRanks);
  EXPECT_THAT(told, SizeIs(kRanks - 1)) << "all know that one is missing";
  EXPECT_EQ(told.begin()->second, static_cast<int>(kRanks) - 1);
}

TEST_F(RendezvousTest, ReportsWhoWaitsForWhomTheLongestFirst) {
  Join(0, 3);
  Join(1, 3);
  now_ = 10;
  Arrive(1, MakePart(1, 0));
  now_ = 20;
  Arrive(0, MakePart(0, 1, CONCERT_OP_ALL_GATHER, 8));
  CollectiveReport report;
  rendezvous_.Report(report);
  EXPECT_EQ(report.communicators, 1u);
  EXPECT_FALSE(report.cut);
  ASSERT_THAT(report.collectives, SizeIs(2));
  const ReportedCollective& first = report.collectives[0];
  EXPECT_EQ(first.communicator, kCommunicator);
  EXPECT_EQ(first.sequence, 0u);
  EXPECT_EQ(first.since, 10);
  EXPECT_EQ(first.bytes, 1024u);
  EXPECT_EQ(first.uid, 1000u);
  EXPECT_EQ(first.parts_there, 1u);
  EXPECT_FALSE(first.running);
  using State = ReportedRank::State;
  const State states[] = {State::kMissing, State::kThere, State::kNotJoined};
  ASSERT_EQ(first.rank_count, 3u);
  for (size_t rank = 0; rank < 3; ++rank) {
    const ReportedRank& reported = report.ranks[first.first_rank + rank];
    EXPECT_EQ(reported.state, states[rank]) << rank;
    EXPECT_EQ(reported.gpu, rank < 2 ? static_cast<int>(rank) : -1);
    EXPECT_EQ(reported.session, rank < 2 ? 100 + rank : 0);
  }
  EXPECT_EQ(report.collectives[1].sequence, 1u);
  EXPECT_EQ(report.collectives[1].kind, CONCERT_OP_ALL_GATHER);
}

TEST_F(RendezvousTest, AReportIsBoundedAndSaysWhenThereIsMore) {
  JoinAll(2);
  for (uint64_t i = 0; i < 2 * CollectiveReport::kMaxCollectives; ++i) Arrive(0, MakePart(0, i));
  CollectiveReport report;
  rendezvous_.Report(report);
  EXPECT_TRUE(report.cut);
  EXPECT_THAT(report.collectives, SizeIs(CollectiveReport::kMaxCollectives));
}

TEST_F(RendezvousTest, FailAllGivesBackWhatComesLaterToo) {
  JoinAll(2);
  Arrive(0, MakePart(0, 0));
  rendezvous_.FailAll({CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_DRAIN_TIMEOUT, {1}});
  EXPECT_FALSE(rendezvous_.LetGo(kMany, out_));
  Arrive(0, MakePart(0, 1));
  Arrive(1, MakePart(1, 0));
  ASSERT_THAT(out_.failed, SizeIs(3));
  for (const Rendezvous::Failed& failed : out_.failed)
    EXPECT_EQ(failed.failure.message, CONCERT_MESSAGE_DRAIN_TIMEOUT);
  EXPECT_FALSE(rendezvous_.waiting());
}

}  // namespace
}  // namespace concert::daemon
