#include "daemon/sched/company.h"

#include <gtest/gtest.h>

namespace concert::daemon {
namespace {

constexpr Company::Time kIdle = Company::kIdleNs;

TEST(CompanyTest, AQueueIsNoCompanyOfItsOwn) {
  Company company;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(company.Admitted(1, i));
}

TEST(CompanyTest, OthersAreAtWorkForAWhileAfterTheyWere) {
  Company company;
  EXPECT_FALSE(company.Admitted(1, 0));
  EXPECT_TRUE(company.Admitted(2, 10));
  EXPECT_TRUE(company.Admitted(1, 20));
  EXPECT_TRUE(company.Admitted(1, 10 + kIdle - 1));
  EXPECT_FALSE(company.Admitted(1, 10 + kIdle));
  EXPECT_TRUE(company.Admitted(2, 20 + kIdle)) << "who comes back finds the other at work";
}

TEST(CompanyTest, OfMoreThanTwoTheLastOtherCounts) {
  Company company;
  company.Admitted(1, 0);
  company.Admitted(2, 1);
  company.Admitted(3, kIdle);
  EXPECT_TRUE(company.Admitted(3, kIdle)) << "2 was there";
  EXPECT_FALSE(company.Admitted(3, kIdle + 1));
  EXPECT_TRUE(company.Admitted(2, kIdle + 2));
  EXPECT_TRUE(company.Admitted(2, 2 * kIdle)) << "3 was there";
}

}  // namespace
}  // namespace concert::daemon
