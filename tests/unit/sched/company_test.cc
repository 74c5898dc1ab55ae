#include "daemon/sched/company.h"

#include <gtest/gtest.h>

#include <map>

namespace concert::daemon {
namespace {

class CompanyTest : public testing::Test {
 protected:
  using As = Company::As;
  static constexpr Company::Time kIdle = LatestQueues::kIdleNs;
  static constexpr uint32_t kNobody = 0, kRuns = CONCERT_COMPANY,
                            kOps = CONCERT_COMPANY | CONCERT_COMPANY_OF_OPS;

  // Of a queue whose session has no other.
  uint32_t Op(uint64_t queue, Company::Time now) { return Of(queue, queue, As::kOp, now); }
  uint32_t Run(uint64_t queue, Company::Time now) { return Of(queue, queue, As::kRun, now); }
  uint32_t CouldBeRun(uint64_t queue, Company::Time now) {
    return Of(queue, queue, As::kCouldBeRun, now);
  }
  uint32_t Of(uint64_t session, uint64_t queue, As as, Company::Time now) {
    return company_.Admitted(queue, as, of_session_[session], now);
  }

 private:
  Company company_;
  std::map<uint64_t, LatestQueues> of_session_;
};

TEST_F(CompanyTest, AQueueIsNoCompanyOfItsOwn) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(i % 3 == 0 ? Op(1, i) : Run(1, i), kNobody);
}

TEST_F(CompanyTest, OthersAreAtWorkForAWhileAfterTheyWere) {
  EXPECT_EQ(Op(1, 0), kNobody);
  EXPECT_EQ(Op(2, 10), kOps);
  EXPECT_EQ(Op(1, 20), kOps);
  EXPECT_EQ(Op(1, 10 + kIdle - 1), kOps);
  EXPECT_EQ(Op(1, 10 + kIdle), kNobody);
  EXPECT_EQ(Op(2, 20 + kIdle), kOps) << "who comes back finds the other at work";
}

TEST_F(CompanyTest, OfMoreThanTwoTheLastOtherCounts) {
  Op(1, 0);
  Op(2, 1);
  Op(3, kIdle);
  EXPECT_EQ(Op(3, kIdle), kOps) << "2 was there";
  EXPECT_EQ(Op(3, kIdle + 1), kNobody);
  EXPECT_EQ(Op(2, kIdle + 2), kOps);
  EXPECT_EQ(Op(2, 2 * kIdle), kOps) << "3 was there";
}

TEST_F(CompanyTest, RunsAreCompanyButNotOfOpsAndSoIsWhatCouldBeOne) {
  EXPECT_EQ(Run(1, 0), kNobody);
  EXPECT_EQ(Run(2, 1), kRuns);
  EXPECT_EQ(CouldBeRun(1, 2), kRuns);
  EXPECT_EQ(Run(2, 3), kRuns);
  EXPECT_EQ(Op(1, 4), kRuns);
  EXPECT_EQ(Run(2, 5), kOps) << "1 has had another op";
  EXPECT_EQ(Run(1, 6), kRuns) << "an own op is not";
  EXPECT_EQ(Run(2, 4 + kIdle), kRuns) << "1 only has runs again";
}

TEST_F(CompanyTest, OpsOfOneStayBehindRunsOfOthers) {
  Op(1, 0);
  for (int i = 1; i < 10; ++i) EXPECT_EQ(Run(2 + static_cast<uint64_t>(i) % 2, i), kOps);
}

// Runs of one session follow one another.
TEST_F(CompanyTest, QueuesOfASessionAreCompanyOfOpsToOneAnother) {
  constexpr uint64_t kSession = 7;
  EXPECT_EQ(Of(kSession, 1, As::kCouldBeRun, 0), kNobody);
  EXPECT_EQ(Of(kSession, 2, As::kCouldBeRun, 1), kOps);
  EXPECT_EQ(Run(3, 2), kOps) << "its ops go together";
  EXPECT_EQ(Of(kSession, 1, As::kCouldBeRun, 3), kOps);
  EXPECT_EQ(Of(kSession, 1, As::kCouldBeRun, kIdle + 1), kRuns) << "its other queue has stopped";
  EXPECT_EQ(Run(3, 3 + kIdle), kRuns);
}

}  // namespace
}  // namespace concert::daemon
