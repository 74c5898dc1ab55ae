#include "daemon/sched/company.h"

#include <gtest/gtest.h>

namespace concert::daemon {
namespace {

constexpr Company::Time kIdle = Company::kIdleNs;

class CompanyTest : public testing::Test {
 protected:
  static constexpr uint32_t kNobody = 0, kRuns = CONCERT_COMPANY,
                            kOps = CONCERT_COMPANY | CONCERT_COMPANY_OF_OPS;

  uint32_t Op(uint64_t queue, Company::Time now) { return company_.Admitted(queue, false, now); }
  uint32_t Run(uint64_t queue, Company::Time now) { return company_.Admitted(queue, true, now); }

 private:
  Company company_;
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

TEST_F(CompanyTest, RunsAreCompanyButNotOfOps) {
  EXPECT_EQ(Run(1, 0), kNobody);
  EXPECT_EQ(Run(2, 1), kRuns);
  EXPECT_EQ(Op(1, 2), kRuns);
  EXPECT_EQ(Run(2, 3), kOps) << "1 has had another op";
  EXPECT_EQ(Run(1, 4), kRuns) << "an own op is not";
  EXPECT_EQ(Run(2, 2 + kIdle), kRuns) << "1 only has runs again";
}

TEST_F(CompanyTest, OpsOfOneStayBehindRunsOfAnother) {
  Op(1, 0);
  for (int i = 1; i < 10; ++i) EXPECT_EQ(Run(2 + static_cast<uint64_t>(i) % 2, i), kOps);
}

}  // namespace
}  // namespace concert::daemon
