#include "daemon/device/sim/sim_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "daemon/device/sim/fair_share.h"
#include "tests/support/seed.h"
#include "tests/unit/sim/sim_engine_fixture.h"

namespace concert::daemon::sim {
namespace {

using policies::kFirstHighLane;

TEST_F(SimEngineTest, PartsOfAKernelEndWithTheirShareOfItsTiles) {
  const Milestone parts[] = {{0.25, 2}, {0.5, 3}, {0.5, 4}, {1, 5}};
  engine_.EnqueueKernel(0, 0, 0, Tiles(32, 100), 0, 1, parts);
  engine_.EnqueueMark(0, 0, 0, 6);
  std::vector<Completion> done;
  engine_.AdvanceTo(1000, done);
  std::vector<std::pair<uint64_t, Time>> ends;
  for (const Completion& completion : done) ends.emplace_back(completion.cookie, completion.time);
  EXPECT_THAT(ends, testing::ElementsAre(testing::Pair(2, 100), testing::Pair(3, 200),
                                         testing::Pair(4, 200), testing::Pair(5, 400),
                                         testing::Pair(1, 400), testing::Pair(6, 400)));
}

TEST_F(SimEngineTest, PartsOfAShortKernelShareItsFloor) {
  const Milestone parts[] = {{0.5, 2}, {1, 3}};
  KernelShape shape = Tiles(8, 100);
  shape.floor_ns = 1000;
  const uint32_t room = engine_.MilestoneRoom();
  engine_.EnqueueKernel(0, 0, 0, shape, 0, 1, parts);
  EXPECT_EQ(engine_.MilestoneRoom(), room - 2);
  Run();
  EXPECT_EQ(ends_[2], 500);
  EXPECT_EQ(ends_[3], 1000);
  EXPECT_EQ(ends_[1], 1000);
  EXPECT_EQ(engine_.MilestoneRoom(), room);
}

TEST_F(SimEngineTest, TilesRunInWaves) {
  engine_.EnqueueKernel(0, 0, 0, Tiles(8, 100), 0, 1);
  engine_.EnqueueKernel(1, 0, 0, Tiles(9, 100), 0, 2);
  Run();
  EXPECT_EQ(ends_[1], 100);
  EXPECT_EQ(ends_[2], 200) << "the ninth tile is a wave of its own";
}

TEST_F(SimEngineTest, ATileThatHasNextToNothingLeftHasEnded) {
  engine_.EnqueueKernel(0, 0, 0, Tiles(1, 100.0005), 0, 1);
  engine_.EnqueueKernel(1, 0, 0, Tiles(2, 100.0005), 1, 2);
  std::vector<Completion> done;
  engine_.AdvanceTo(100, done);  // between two events
  EXPECT_EQ(engine_.NextEvent(), 100) << "not in the past, and not never";
  Run();
  EXPECT_EQ(ends_[1], 100);
  EXPECT_EQ(ends_[2], 201);
}

TEST_F(SimEngineTest, AGpuIsIdleWhileNothingHoldsItsSms) {
  engine_.EnqueueKernel(0, 0, 50, Tiles(1, 100), 0, 1);
  engine_.EnqueueMark(0, 0, 50, 2);
  Run();
  std::vector<Completion> done;
  engine_.AdvanceTo(300, done);
  EXPECT_EQ(engine_.IdleTime(0), 200);
  EXPECT_EQ(engine_.IdleTime(1), 300);
}

TEST_F(SimEngineTest, SmLimitStretchesAKernel) {
  engine_.EnqueueKernel(0, 0, 0, Tiles(8, 100), 2, 1);
  engine_.EnqueueKernel(0, 1, 0, Tiles(6, 100), 0, 2);
  Run();
  EXPECT_EQ(ends_[1], 400);
  EXPECT_EQ(ends_[2], 100) << "the six SMs left are the other kernel's";
}

TEST_F(SimEngineTest, ALaneRunsInOrder) {
  engine_.EnqueueKernel(0, 3, 0, Tiles(1, 100), 0, 1);
  engine_.EnqueueMark(0, 3, 0, 2);
  engine_.EnqueueKernel(0, 3, 0, Tiles(1, 50), 0, 3);
  Run();
  EXPECT_EQ(ends_[1], 100);
  EXPECT_EQ(ends_[2], 100);
  EXPECT_EQ(ends_[3], 150);
}

TEST_F(SimEngineTest, KernelsShareSmsFairly) {
  engine_.EnqueueKernel(0, 0, 0, Tiles(8, 100), 0, 1);
  engine_.EnqueueKernel(0, 1, 0, Tiles(8, 100), 0, 2);
  Run();
  EXPECT_EQ(ends_[1], 200) << "four SMs each";
  EXPECT_EQ(ends_[2], 200);
}

TEST_F(SimEngineTest, HighLanesTakeFreedSmsFirstButPreemptNothing) {
  engine_.EnqueueKernel(0, 0, 0, Tiles(24, 100), 0, 1);
  std::vector<Completion> done;
  engine_.AdvanceTo(10, done);
  engine_.EnqueueKernel(0, kFirstHighLane, 10, Tiles(8, 100), 0, 2);
  Run();
  EXPECT_EQ(ends_[2], 200) << "waits for the running wave, then takes every SM";
  EXPECT_EQ(ends_[1], 400);
}

TEST_F(SimEngineTest, RunningKernelsShareHbm) {
  // Alone each would draw 4 x 200 = 800 of 1000 bytes per ns.
  engine_.EnqueueKernel(0, 0, 0, Tiles(4, 100, 20000), 0, 1);
  engine_.EnqueueKernel(0, 1, 0, Tiles(4, 100, 20000), 0, 2);
  engine_.EnqueueKernel(1, 0, 0, Tiles(4, 100, 20000), 0, 3);
  Run();
  EXPECT_EQ(ends_[3], 100);
  EXPECT_EQ(ends_[1], 160) << "500 of the 800 bytes per ns it wants";
  EXPECT_EQ(ends_[2], 160);
}

TEST_F(SimEngineTest, ASmallHbmDemandIsServedInFull) {
  engine_.EnqueueKernel(0, 0, 0, Tiles(1, 100, 10000), 0, 1);  // 100 bytes per ns
  engine_.EnqueueKernel(0, 1, 0, Tiles(6, 100, 30000), 0, 2);  // 1800 bytes per ns
  Run();
  EXPECT_EQ(ends_[1], 100);
  EXPECT_EQ(ends_[2], 190) << "half done after 100 ns at 900 of 1800, then 1000 of 1800";
}

TEST_F(SimEngineTest, CopiesUseCopyEnginesNotSms) {
  for (Lane lane = 0; lane < 3; ++lane)
    engine_.EnqueueCopy(0, lane, 0, 10000, CopyRoute::kLink, lane);
  engine_.EnqueueKernel(0, 3, 0, Tiles(8, 100), 0, 3);
  Run();
  EXPECT_EQ(ends_[0], 100) << "10 000 bytes at 100 per ns";
  EXPECT_EQ(ends_[1], 100);
  EXPECT_EQ(ends_[2], 200) << "there are two engines";
  EXPECT_EQ(ends_[3], 100) << "all SMs are free for the kernel";
}

TEST_F(SimEngineTest, ACopyWithinAGpuSharesItsMemoryOnly) {
  engine_.EnqueueCopy(0, 0, 0, 10000, CopyRoute::kMemory, 0);
  engine_.EnqueueCopy(1, 0, 0, 10000, CopyRoute::kMemory, 1);
  engine_.EnqueueCopy(1, 1, 0, 10000, CopyRoute::kMemory, 2);
  Run();
  EXPECT_EQ(ends_[0], 20) << "10 000 bytes, read and written, at 1000 per ns";
  EXPECT_EQ(ends_[1], 40);
  EXPECT_EQ(ends_[2], 40);
}

TEST_F(SimEngineTest, OrderWaitsForWhatWasEnqueuedBefore) {
  engine_.EnqueueKernel(0, 0, 0, Tiles(1, 100), 0, 1);
  engine_.EnqueueOrder(0, 1, 0, 0);
  engine_.EnqueueKernel(0, 0, 0, Tiles(1, 500), 0, 2);
  engine_.EnqueueKernel(0, 1, 0, Tiles(1, 50), 0, 3);
  Run();
  EXPECT_EQ(ends_[3], 150) << "after the first kernel, not after the second";
  EXPECT_EQ(ends_[2], 600);
}

// As those of large GEMMs: what comes later, even on a lane of high priority, waits for their end.
TEST_F(SimEngineTest, APersistentKernelKeepsItsSmsFromTileToTile) {
  for (const bool persistent : {false, true}) {
    SimEngine engine(std::vector{PlainModel()}, 64);
    KernelShape shape = Tiles(4 * 8, 100);
    shape.persistent = persistent;
    engine.EnqueueKernel(0, 0, 0, shape, 0, 1);
    std::vector<Completion> done;
    engine.AdvanceTo(150, done);
    engine.EnqueueKernel(0, kFirstHighLane, 150, Tiles(2, 50), 0, 2);
    engine.AdvanceTo(1000, done);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[0].cookie, persistent ? 1u : 2u);
    EXPECT_EQ(done[0].time, persistent ? 400 : 250);
    EXPECT_EQ(done[1].time, 450) << "the same work";
  }
}

// It gives back the SMs that its tiles leave at the end, and takes more when they are free.
TEST_F(SimEngineTest, APersistentKernelTakesSmsThatComeFree) {
  KernelShape shape = Tiles(12, 100);
  shape.persistent = true;
  engine_.EnqueueKernel(0, 0, 0, Tiles(4, 50), 0, 1);
  engine_.EnqueueKernel(0, 1, 0, shape, 0, 2);
  Run();
  EXPECT_EQ(ends_[1], 50);
  EXPECT_EQ(ends_[2], 200) << "four at 0, four at 50, four at 100";
}

TEST_F(SimEngineTest, AKernelMayNeedTimeBehindWhatIsBeforeItOnItsLane) {
  KernelShape shape = Tiles(1, 100);
  shape.behind_ns = 30;
  engine_.EnqueueKernel(0, 0, 0, shape, 0, 1);
  engine_.EnqueueMark(0, 0, 0, 2);
  engine_.EnqueueKernel(0, 0, 0, shape, 0, 3);
  engine_.EnqueueKernel(0, 1, 0, shape, 0, 4);
  Run();
  EXPECT_EQ(ends_[1], 100) << "nothing is before it";
  EXPECT_EQ(ends_[2], 100);
  EXPECT_EQ(ends_[3], 230);
  EXPECT_EQ(ends_[4], 100) << "another lane";
}

class SimEngineLatencyTest : public SimEngineTest {
 protected:
  static DeviceModel Model() {
    DeviceModel model = PlainModel();
    model.launch_us = 3;
    return model;
  }
  SimEngineLatencyTest() : SimEngineTest(1, Model()) {}
};

TEST_F(SimEngineLatencyTest, LatencyIsPaidOnceByABackToBackLane) {
  engine_.EnqueueKernel(0, 0, 1000, {.tiles = 1, .tile_ns = 100, .floor_ns = 2000}, 0, 1);
  engine_.EnqueueKernel(0, 0, 1500, Tiles(1, 100), 0, 2);
  Run();
  EXPECT_EQ(ends_[1], 1000 + 3000 + 2000) << "launch latency, then the floor";
  EXPECT_EQ(ends_[2], 6100) << "its latency passed while the first ran";
}

TEST(FairCapTest, SmallDemandsInFullLargeOnesEqually) {
  const double demands[] = {10, 80, 60};
  EXPECT_DOUBLE_EQ(FairCap(demands, 100), 45);
  EXPECT_GT(FairCap(demands, 150), 1e300);
  EXPECT_GT(FairCap({}, 1), 1e300);
}

// Two engines fed the same random work give the same completions, however time is cut into steps,
// and all resources are free at the end.
TEST(SimEngineRandomTest, DeterministicAndComplete) {
  for (uint64_t round = 0; round < 20; ++round) {
    const uint64_t seed = test::Seed() + round;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto run = [seed](Time step) {
      std::mt19937_64 random(seed);
      const auto below = [&random](uint64_t n) { return static_cast<int>(random() % n); };
      SimEngine engine(std::vector(2, DeviceModel{}), 256);
      for (int i = 0; i < 200; ++i) {
        const int gpu = below(2);
        const Lane lane = static_cast<Lane>(below(12));
        const Time at = below(100000);
        const uint64_t cookie = static_cast<uint64_t>(i);
        switch (below(5)) {
          case 0:
            engine.EnqueueKernel(
                gpu, lane, at, Tiles(1 + below(500), 100 + below(5000), below(100000)), 0, cookie);
            break;
          case 1:
            engine.EnqueueCopy(gpu, lane, at, random() % 10000000, static_cast<CopyRoute>(below(2)),
                               cookie);
            break;
          case 2:
            engine.EnqueueMark(gpu, lane, at, cookie);
            break;
          case 3:
            engine.EnqueueOrder(gpu, lane, static_cast<Lane>(below(12)), at);
            break;
          case 4:
            engine.EnqueueCollective(
                std::vector<CollectivePart>{{.gpu = 0, .link_bytes = 1e6, .hbm_bytes = 2e6},
                                            {.gpu = 1, .link_bytes = 1e6, .hbm_bytes = 2e6}},
                {.transport = static_cast<policies::Transport>(below(policies::kTransportCount)),
                 .sms = static_cast<uint16_t>(below(8))},
                at, cookie);
            break;
        }
      }
      std::vector<Completion> done;
      while (engine.NextEvent() != kNever) engine.AdvanceTo(engine.now() + step, done);
      for (int gpu = 0; gpu < 2; ++gpu) {
        for (int lane = 0; lane < policies::kLaneCount; ++lane) {
          EXPECT_EQ(engine.Room(gpu, static_cast<Lane>(lane)), 256);
        }
      }
      std::vector<std::pair<uint64_t, Time>> ends;
      for (const Completion& completion : done)
        ends.emplace_back(completion.cookie, completion.time);
      return ends;
    };
    const auto once = run(10000000);
    EXPECT_GT(once.size(), 100u);
    EXPECT_EQ(once, run(10000000));
    const auto stepped = run(777);
    ASSERT_EQ(stepped.size(), once.size());
    for (const auto& [cookie, time] : stepped) {
      const auto same = [c = cookie](const auto& end) { return end.first == c; };
      const auto it = std::find_if(once.begin(), once.end(), same);
      ASSERT_NE(it, once.end());
      // Each step may round an end up to the next ns.
      EXPECT_NEAR(static_cast<double>(it->second), static_cast<double>(time), 1000) << cookie;
    }
  }
}

}  // namespace
}  // namespace concert::daemon::sim
