#include "policies/auto/split/fair_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/seed.h"

namespace concert::policies {
namespace {

FairBounds Of(const std::vector<float>& work_us, float slack_us = 0) {
  FairBounds bounds;
  bounds.Clear();
  for (const float us : work_us) bounds.Add(us, false);
  bounds.FindBounds(slack_us);
  return bounds;
}

TEST(FairBoundsTest, ALoneSessionMayTakeItsOwnTime) {
  FairBounds bounds;
  bounds.Clear();
  for (int i = 0; i < 3; ++i) bounds.Add(10, i > 0);
  bounds.FindBounds();
  EXPECT_EQ(bounds.last_session(), 0);
  EXPECT_NEAR(bounds.BoundUs(0), 30, 0.1);
}

TEST(FairBoundsTest, EqualSessionsMayAllEndTogether) {
  const FairBounds bounds = Of({10, 10, 10, 10});
  for (int session = 0; session < 4; ++session) EXPECT_NEAR(bounds.BoundUs(session), 40, 0.1);
}

TEST(FairBoundsTest, AShortSessionIsNotHeldUntilALongOneEnds) {
  EXPECT_NEAR(Of({5, 100}).BoundUs(0), 10, 0.1);   // an even share
  EXPECT_NEAR(Of({100, 5}).BoundUs(1), 105, 0.1);  // its turn
}

TEST(FairBoundsTest, SlackIsAddedToAll) {
  const FairBounds bounds = Of({5, 100}, 7);
  EXPECT_NEAR(bounds.BoundUs(0), 17, 0.1);
  EXPECT_NEAR(bounds.BoundUs(1), 112, 0.1);
}

// So there is always a way to keep to the bounds.
TEST(FairBoundsTest, TurnsInOrderAndShortestFirstKeepToTheBounds) {
  std::mt19937 random(test::Seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<float> work_us(1 + random() % 20);
    for (float& us : work_us) us = 1 + static_cast<float>(random() % 1000);
    const FairBounds bounds = Of(work_us);
    std::vector<int> order(work_us.size());
    std::iota(order.begin(), order.end(), 0);
    for (const bool sorted : {false, true}) {
      if (sorted) {
        std::sort(order.begin(), order.end(),
                  [&](int a, int b) { return work_us[a] < work_us[b]; });
      }
      float end_us = 0;
      for (const int session : order) {
        end_us += work_us[session];
        ASSERT_LE(end_us, bounds.BoundUs(session)) << "seed " << test::Seed() << " round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace concert::policies
