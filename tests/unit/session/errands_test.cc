#include "daemon/session/errands.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <semaphore>
#include <thread>

namespace concert::daemon {
namespace {

// Waits until an errand's work has ended.
void Await(const Errands& errands) {
  pollfd wake{.fd = errands.wake_fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&wake, 1, 60'000), 1);
}

TEST(ErrandsTest, WorkIsDoneElsewhereAndFinishedHere) {
  Errands errands;
  std::thread::id worked, finished;
  int result = 0;
  errands.Begin<std::unique_ptr<int>>(
      [&] {
        worked = std::this_thread::get_id();
        return std::make_unique<int>(7);
      },
      [&](std::unique_ptr<int> made) {
        EXPECT_FALSE(errands.busy());
        finished = std::this_thread::get_id();
        result = *made;
      });
  EXPECT_TRUE(errands.busy());
  Await(errands);
  EXPECT_TRUE(errands.busy());
  EXPECT_EQ(result, 0);
  errands.Finish();
  EXPECT_FALSE(errands.busy());
  EXPECT_EQ(result, 7);
  EXPECT_EQ(finished, std::this_thread::get_id());
  EXPECT_NE(worked, finished);
  EXPECT_NE(worked, std::thread::id());
}

TEST(ErrandsTest, NothingIsFinishedBeforeItsWorkHasEnded) {
  Errands errands;
  std::binary_semaphore go(0);
  int finished = 0;
  errands.Begin<int>(
      [&] {
        go.acquire();
        return 1;
      },
      [&](int one) { finished += one; });
  errands.Finish();
  EXPECT_TRUE(errands.busy());
  EXPECT_EQ(finished, 0);
  go.release();
  Await(errands);
  errands.Finish();
  EXPECT_EQ(finished, 1);
  errands.Finish();
  EXPECT_EQ(finished, 1);
}

// A descriptor that stays readable keeps the control thread from sleeping.
TEST(ErrandsTest, NothingIsReadableBehindAnErrandThatWasFinishedAsSoonAsItCouldBe) {
  Errands errands;
  for (int i = 0; i < 2'000; ++i) {
    int finished = 0;
    errands.Begin<int>([] { return 1; }, [&](int one) { finished += one; });
    while (errands.busy()) errands.Finish();
    ASSERT_EQ(finished, 1);
    pollfd wake{.fd = errands.wake_fd(), .events = POLLIN, .revents = 0};
    for (int look = 0; look < 20; ++look) ASSERT_EQ(poll(&wake, 1, 0), 0) << "errand " << i;
  }
}

TEST(ErrandsTest, WhatFinishesOneMayBeginAnother) {
  Errands errands;
  int sum = 0;
  errands.Begin<int>([] { return 1; },
                     [&](int one) {
                       sum += one;
                       errands.Begin<int>([] { return 10; }, [&](int ten) { sum += ten; });
                     });
  Await(errands);
  errands.Finish();
  EXPECT_TRUE(errands.busy());
  EXPECT_EQ(sum, 1);
  Await(errands);
  errands.Finish();
  EXPECT_FALSE(errands.busy());
  EXPECT_EQ(sum, 11);
}

TEST(ErrandsTest, WhatAnErrandHoldsGoesWithIt) {
  Errands errands;
  auto held = std::make_shared<int>(0);
  errands.Begin<int>([held] { return 1; }, [held](int) {});
  EXPECT_GT(held.use_count(), 1);
  Await(errands);
  errands.Finish();
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace concert::daemon
