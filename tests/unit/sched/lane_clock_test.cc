#include "daemon/sched/lane_clock.h"

#include <vector>

#include "gtest/gtest.h"

namespace concert::daemon {
namespace {

TEST(LaneClockTest, AddsUpWhatIsLaunched) {
  LaneClock clock;
  EXPECT_LE(clock.BusyUntil(100), 100);
  clock.Launched(100, 110, 1);
  EXPECT_EQ(clock.BusyUntil(104), 110);
  EXPECT_EQ(clock.running_ns(), 10);
  clock.Launched(104, 130, 1);
  EXPECT_EQ(clock.BusyUntil(104), 130);
}

TEST(LaneClockTest, AnOverdueLaunchIsAboutToEnd) {
  LaneClock clock;
  clock.Launched(100, 110, 1);
  clock.Launched(100, 130, 1);
  EXPECT_EQ(clock.BusyUntil(150), 170);
  clock.Launched(150, 180, 1);
  EXPECT_EQ(clock.BusyUntil(150), 180);
}

TEST(LaneClockTest, TheNextLaunchStartsWhenTheLastOpOfTheOneBeforeEnds) {
  LaneClock clock;
  const uint32_t first = clock.Launched(100, 110, 2);
  const uint32_t second = clock.Launched(100, 130, 1);
  clock.Finished(first, 104);
  EXPECT_EQ(clock.BusyUntil(104), 130);
  clock.Finished(first, 105);
  EXPECT_EQ(clock.BusyUntil(105), 125);
  EXPECT_EQ(clock.running_ns(), 20);
  clock.Finished(second, 118);
  EXPECT_EQ(clock.BusyUntil(200), 118);
  EXPECT_EQ(clock.running_ns(), 0);
}

TEST(LaneClockTest, LaunchesMayEndInAnyOrder) {
  LaneClock clock;
  const uint32_t first = clock.Launched(100, 110, 1);
  const uint32_t second = clock.Launched(100, 130, 1);
  clock.Launched(100, 160, 1);
  clock.Finished(second, 105);
  EXPECT_EQ(clock.BusyUntil(105), 160);
  clock.Finished(first, 108);
  EXPECT_EQ(clock.BusyUntil(108), 138);
}

TEST(LaneClockTest, EveryLaunchHasAnEndOfItsOwn) {
  LaneClock clock;
  const uint32_t first = clock.Launched(100, 110, 1);
  const uint32_t second = clock.Launched(100, 130, 1);
  EXPECT_EQ(clock.EndOf(first, 104), 110);
  EXPECT_EQ(clock.EndOf(second, 104), 130);
  EXPECT_EQ(clock.EndOf(first, 115), 115) << "overdue";
  EXPECT_EQ(clock.EndOf(second, 115), 135);
  clock.Finished(first, 117);
  const uint32_t third = clock.Launched(117, 150, 1);
  EXPECT_EQ(clock.EndOf(second, 117), 137);
  EXPECT_EQ(clock.EndOf(third, 117), 150);
  EXPECT_EQ(clock.EndOf(third, 117), clock.BusyUntil(117)) << "the last one's is the lane's";
}

TEST(LaneClockTest, KeepsTheTimeOfMoreLaunchesThanItHasRoomFor) {
  LaneClock clock;
  std::vector<uint32_t> launches;
  for (int i = 1; i <= 1000; ++i) launches.push_back(clock.Launched(0, 10 * i, 1));
  EXPECT_EQ(clock.BusyUntil(0), 10'000);
  EXPECT_EQ(clock.EndOf(launches.front(), 0), 10);
  EXPECT_EQ(clock.EndOf(launches.back(), 0), 10'000);
  for (const uint32_t launch : launches) clock.Finished(launch, 7);
  EXPECT_EQ(clock.BusyUntil(8), 7);
}

}  // namespace
}  // namespace concert::daemon
