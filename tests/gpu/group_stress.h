// Launches of groups, more of them at a time than run: what tests of their order and of their
// caches have in common.
#ifndef CONCERT_TESTS_GPU_GROUP_STRESS_H_
#define CONCERT_TESTS_GPU_GROUP_STRESS_H_

#include <deque>
#include <random>
#include <vector>

#include "tests/gpu/group_run.h"
#include "tests/support/seed.h"

namespace concert::test {

inline constexpr int kStressLaunches = 300;

class GpuGroupStressTest : public GpuGroupTestBase {
 protected:
  // Launches that may be unfinished at a time, less than GroupLauncher::kMaxUnfinished on all lanes
  // together.
  static constexpr size_t kWindow = 24;

  // Waits until fewer than `window` launches are unfinished, then takes one more.
  void Throttle(std::deque<std::vector<daemon::TimelineWrite>>& unfinished,
                const std::vector<daemon::TimelineWrite>& writes, size_t window = kWindow) {
    while (unfinished.size() >= window) {
      for (const daemon::TimelineWrite& write : unfinished.front()) {
        ASSERT_TRUE(WaitFor(IndexOf(write), write.value)) << device().healthy();
      }
      unfinished.pop_front();
    }
    unfinished.push_back(writes);
  }
  int IndexOf(const daemon::TimelineWrite& write) const {
    return static_cast<int>((write.address - TimelineAddress(0)) / 64);
  }

  std::mt19937 random_{Seed()};
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_GROUP_STRESS_H_
