// Who counts as at work, by how often and when others have come since.
#include "kernels/step/at_work.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace concert::test {
namespace {

using kernels::cuda::AtWork;
using kernels::cuda::SeenOp;

constexpr int64_t kMs = 1'000'000, kBegin = 7'000 * kMs;

class AtWorkTest : public testing::Test {
 protected:
  void Runs(uint64_t client, int64_t at_ns) {
    at_work_.See({.client = client, .program = true, .now_ns = kBegin + at_ns});
  }
  void SingleOp(uint64_t client) { at_work_.See({.client = client}); }

  AtWork at_work_;
};

TEST_F(AtWorkTest, WhoHasNotBeenSeenForLongIsNotAtWork) {
  at_work_.See({.client = 1, .program = true});
  const uint64_t alone = at_work_.company();
  at_work_.See({.client = 2, .program = true, .high = true});
  EXPECT_EQ(at_work_.clients(), 2);
  EXPECT_TRUE(at_work_.classes_differ());
  EXPECT_TRUE(at_work_.only_programs());
  EXPECT_NE(at_work_.company(), alone);
  EXPECT_EQ(at_work_.longest_away(), 1u);
  at_work_.See({.client = 2});
  EXPECT_EQ(at_work_.longest_away(), 2u);
  EXPECT_FALSE(at_work_.only_programs());
  EXPECT_FALSE(at_work_.classes_differ());
  for (uint64_t i = 1; i < AtWork::kIdleAfter; ++i) {
    at_work_.See({.client = 1, .program = true});
    EXPECT_EQ(at_work_.longest_away(), i);
    EXPECT_EQ(at_work_.clients(), 2);
  }
  at_work_.See({.client = 1, .program = true});
  EXPECT_EQ(at_work_.longest_away(), 0u);
  EXPECT_EQ(at_work_.clients(), 1);
  EXPECT_TRUE(at_work_.only_programs());
  EXPECT_EQ(at_work_.company(), alone);
}

TEST_F(AtWorkTest, WhoStopsIsIdleAfterSomeOfItsIntervals) {
  for (int64_t ms = 0; ms < 100; ms += 10) Runs(1, ms * kMs), Runs(2, ms * kMs);
  // The last came at 90 ms: it may take four times 10 ms, and 5 ms.
  for (int64_t ms = 91; ms <= 135; ms += 2) {
    Runs(2, ms * kMs);
    ASSERT_EQ(at_work_.clients(), 2) << ms;
  }
  Runs(2, 136 * kMs);
  EXPECT_EQ(at_work_.clients(), 1);
  Runs(1, 137 * kMs);
  EXPECT_EQ(at_work_.clients(), 2) << "it is back";
}

TEST_F(AtWorkTest, RunsMayComeInBunches) {
  for (int64_t ms = 0; ms < 100; ms += 10) {
    for (int i = 0; i < 8; ++i) Runs(1, ms * kMs);
  }
  Runs(2, 105 * kMs);
  EXPECT_EQ(at_work_.clients(), 2);
}

TEST_F(AtWorkTest, SingleOpsAreForgottenAfterFiveMilliseconds) {
  Runs(1, 0);
  SingleOp(2);
  Runs(1, 1 * kMs);  // the first that says when that was
  EXPECT_FALSE(at_work_.only_programs());
  Runs(1, 6 * kMs);
  EXPECT_FALSE(at_work_.only_programs());
  Runs(1, 7 * kMs);
  EXPECT_TRUE(at_work_.only_programs());
  EXPECT_EQ(at_work_.clients(), 1);
}

TEST_F(AtWorkTest, OpsOfOthersThatDoNotSayWhenTheyComeMakeNobodyIdle) {
  Runs(1, 0);
  for (uint64_t i = 0; i + 1 < AtWork::kIdleAfter; ++i) SingleOp(2);
  EXPECT_EQ(at_work_.clients(), 2);
}

}  // namespace
}  // namespace concert::test
