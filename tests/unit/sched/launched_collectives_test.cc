#include "daemon/sched/launched_collectives.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace concert::daemon {
namespace {

class LaunchedCollectivesTest : public testing::Test {
 protected:
  LaunchedCollectivesTest() { launched_.Watch({&ends_[0], &ends_[1]}); }

  void Launch(uint64_t sequence, policies::Lane lane = policies::kCollectiveLane) {
    Op op;
    op.kind = CONCERT_OP_ALL_REDUCE;
    op.collective = {.communicator = 7 << 8, .sequence = sequence, .count = 100};
    op.collective.dtype = policies::Dtype::kBf16;
    const RankPart parts[] = {{.gpu = 0, .lane = lane, .op = &op},
                              {.gpu = 1, .lane = lane, .op = &op}};
    const CollectivePlan plan = {.choice = {policies::Transport::kPeer, 8},
                                 .reservation = {.sms = 8, .run_ns = 5000}};
    launched_.Add(parts, plan, /*uid=*/1000, /*launched_at=*/static_cast<policies::Time>(sequence));
  }
  std::vector<uint64_t> Running() {
    report_ = std::make_unique<CollectiveReport>();
    launched_.Report(*report_);
    std::vector<uint64_t> sequences;
    for (const ReportedCollective& one : report_->collectives) sequences.push_back(one.sequence);
    return sequences;
  }
  using Sequences = std::vector<uint64_t>;

  CollectiveEnds ends_[2];
  LaunchedCollectives launched_{2};
  std::unique_ptr<CollectiveReport> report_;
};

TEST_F(LaunchedCollectivesTest, RunUntilEveryGpuHasSeenTheirEnd) {
  Launch(0);
  Launch(1);
  Launch(2, policies::kHighCollectiveLane);
  EXPECT_EQ(Running(), (Sequences{0, 1, 2}));
  const ReportedCollective& first = report_->collectives[0];
  EXPECT_TRUE(first.running);
  EXPECT_EQ(first.communicator, 7u);
  EXPECT_EQ(first.bytes, 200u);
  EXPECT_EQ(first.uid, 1000u);
  EXPECT_EQ(first.choice, (policies::TransportChoice{policies::Transport::kPeer, 8}));
  EXPECT_EQ(first.run_ns, 5000);
  ASSERT_EQ(first.rank_count, 2u);
  EXPECT_EQ(report_->ranks[first.first_rank + 1].gpu, 1);
  ends_[0].Of(policies::kCollectiveLane) = 2;
  ends_[1].Of(policies::kCollectiveLane) = 1;
  EXPECT_EQ(Running(), (Sequences{1, 2})) << "GPU 1 has not seen the end of op 1";
  ends_[1].Of(policies::kCollectiveLane) = 2;
  EXPECT_EQ(Running(), (Sequences{2})) << "the high lane's goes on";
}

TEST_F(LaunchedCollectivesTest, AnAnswerIsBoundedAndSaysWhenThereIsMore) {
  for (uint64_t i = 0; i < 1000; ++i) Launch(i);
  const Sequences running = Running();
  EXPECT_EQ(running.size(), CollectiveReport::kMaxCollectives);
  EXPECT_EQ(running.front(), 1000u - 256) << "older ones are forgotten";
  EXPECT_TRUE(report_->cut);
  EXPECT_LE(report_->ranks.size(), CollectiveReport::kMaxRanks);
}

}  // namespace
}  // namespace concert::daemon
