#include "daemon/device/sim/sim_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "daemon/device/sim/fair_share.h"
#include "policies/cost/collective_cost.h"
#include "policies/cost/cost_model.h"
#include "tests/support/seed.h"

namespace concert::daemon::sim {
namespace {

using policies::DeviceModel;
using policies::kCollectiveLane;
using policies::kFirstHighLane;
using policies::kHighCollectiveLane;

// Round numbers; nothing has a latency or a floor.
DeviceModel PlainModel() {
  DeviceModel model;
  model.sm_count = 8;
  model.hbm_bytes_per_s = 1000e9;  // 1000 bytes per ns
  model.link_bytes_per_s = 100e9;  // 100 bytes per ns
  model.launch_us = 0;
  model.kernel_floor_us = 0;
  model.collective_floor_us = 0;
  model.copy_engines = 2;
  model.transport_curves.Of(policies::Transport::kNccl, 2) = {};
  return model;
}

KernelShape Tiles(int64_t count, double ns, double bytes = 0) {
  return {.tiles = count, .tile_ns = ns, .tile_bytes = bytes, .floor_ns = 0};
}

class SimEngineTest : public testing::Test {
 protected:
  explicit SimEngineTest(int gpus = 2, DeviceModel model = PlainModel())
      : engine_(std::vector(static_cast<size_t>(gpus), model), 64) {}

  // Runs everything; ends_[cookie] is when it ended.
  void Run() {
    std::vector<Completion> done;
    for (Time next = engine_.NextEvent(); next != kNever; next = engine_.NextEvent()) {
      engine_.AdvanceTo(next, done);
    }
    for (const Completion& completion : done) ends_[completion.cookie] = completion.time;
  }

  SimEngine engine_;
  std::array<Time, 64> ends_{};
};

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

// Memory's queue slows blocks of a collective, which wait for what they have on its way, but no
// copy engine.
TEST_F(SimEngineTest, ACollectiveOnSmsIsSlowedInProportionWhereMemoryIsTheLimit) {
  using policies::Transport;
  DeviceModel model = PlainModel();
  model.transport_curves.Of(Transport::kCopyEngine, 2) = {};
  const auto end_of = [&](Transport transport) {
    SimEngine engine(std::vector(2, model), 64);
    engine.EnqueueKernel(0, 0, 0, Tiles(6, 400, 120000), 0, 1);  // 1800 bytes per ns
    engine.EnqueueCollective(
        std::vector<CollectivePart>{{.gpu = 0, .link_bytes = 10000, .hbm_bytes = 25000},
                                    {.gpu = 1, .link_bytes = 10000, .hbm_bytes = 25000}},
        {.transport = transport}, 0, 2);
    std::vector<Completion> done;
    engine.AdvanceTo(300, done);
    return done.empty() ? kNever : done[0].time;
  };
  EXPECT_EQ(end_of(Transport::kNccl), 125) << "asks for 250 of 1250 bytes per ns";
  EXPECT_EQ(end_of(Transport::kCopyEngine), 100);
}

TEST_F(SimEngineTest, CopiesUseCopyEnginesNotSms) {
  for (Lane lane = 0; lane < 3; ++lane) engine_.EnqueueCopy(0, lane, 0, 10000, lane);
  engine_.EnqueueKernel(0, 3, 0, Tiles(8, 100), 0, 3);
  Run();
  EXPECT_EQ(ends_[0], 100) << "10 000 bytes at 100 per ns";
  EXPECT_EQ(ends_[1], 100);
  EXPECT_EQ(ends_[2], 200) << "there are two engines";
  EXPECT_EQ(ends_[3], 100) << "all SMs are free for the kernel";
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

TEST_F(SimEngineTest, ACollectiveWaitsForAllItsGpus) {
  engine_.EnqueueKernel(1, kCollectiveLane, 0, Tiles(1, 300), 0, 1);
  const std::vector<CollectivePart> parts = {{.gpu = 0, .link_bytes = 10000},
                                             {.gpu = 1, .link_bytes = 10000}};
  engine_.EnqueueCollective(parts, {}, 0, 2);
  engine_.EnqueueMark(0, kCollectiveLane, 0, 3);
  Run();
  EXPECT_EQ(ends_[2], 400);
  EXPECT_EQ(ends_[3], 400);
}

TEST_F(SimEngineTest, ACollectiveWaitsBehindAFullGrid) {
  engine_.EnqueueKernel(0, 0, 0, Tiles(8, 250), 0, 1);
  std::vector<Completion> done;
  engine_.AdvanceTo(1, done);
  engine_.EnqueueCollective(
      std::vector<CollectivePart>{{.gpu = 0, .link_bytes = 10000}, {.gpu = 1}}, {}, 1, 2);
  Run();
  EXPECT_EQ(ends_[2], 350);
}

// Copy engines hold no SM: what they carry goes on beside a full grid, and takes what the cost
// model says.
TEST_F(SimEngineTest, ACollectiveByCopiesWaitsForNoSm) {
  const policies::TransportChoice copies = {.transport = policies::Transport::kCopyEngine,
                                            .sms = 0};
  const policies::Work work = {.ranks = 2, .link_bytes = 10000};
  engine_.EnqueueKernel(0, 0, 0, Tiles(8, 250), 0, 1);
  std::vector<Completion> done;
  engine_.AdvanceTo(1, done);
  engine_.EnqueueCollective(
      std::vector<CollectivePart>{{.gpu = 0, .link_bytes = 10000}, {.gpu = 1}}, copies, 1, 2);
  Run();
  EXPECT_NEAR(static_cast<double>(ends_[2]),
              1 + 1e3 * policies::TransportUs(PlainModel(), work, work.link_bytes, copies), 2);
  EXPECT_EQ(ends_[1], 250);
}

// What ranks copy to themselves takes SMs: it waits for them, while the engines move the rest.
TEST_F(SimEngineTest, ACollectiveByCopiesWaitsForSmsWithItsOwnCopyOnly) {
  DeviceModel model = PlainModel();
  model.transport_curves.Of(policies::Transport::kCopyEngine, 2) = {.bytes_per_s_per_sm = 50e9};
  const policies::TransportChoice copies = {.transport = policies::Transport::kCopyEngine,
                                            .sms = 4};
  const std::vector<CollectivePart> parts = {{.gpu = 0, .link_bytes = 4e6, .keeps = true},
                                             {.gpu = 1, .link_bytes = 4e6, .keeps = true}};
  const policies::Work work = {.ranks = 2, .keeps = true, .link_bytes = 4'000'000};
  const double alone_ns = 1e3 * policies::TransportUs(model, work, 0, copies);
  const double own_ns = 1e3 * policies::OwnCopyUs(model, work, copies);
  for (const Time gemm_ns : {Time{1}, Time{1'000'000}}) {
    SimEngine engine(std::vector{model, model}, 64);
    std::vector<Completion> done;
    engine.EnqueueKernel(0, 0, 0, Tiles(8, static_cast<double>(gemm_ns)), 0, 1);
    engine.AdvanceTo(0, done);
    engine.EnqueueCollective(parts, copies, 0, 2);
    engine.AdvanceTo(10'000'000, done);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_NEAR(static_cast<double>(done.back().time),
                std::max(alone_ns, static_cast<double>(gemm_ns) + own_ns), 2);
  }
}

// Its own copy takes 20 us of some 60: what waits for its SMs begins then.
TEST_F(SimEngineTest, ACollectiveByCopiesGivesBackTheSmsOfItsOwnCopy) {
  DeviceModel model = PlainModel();
  model.transport_curves.Of(policies::Transport::kCopyEngine, 2) = {.bytes_per_s_per_sm = 25e9};
  const policies::TransportChoice copies = {.transport = policies::Transport::kCopyEngine,
                                            .sms = 8};
  const std::vector<CollectivePart> parts = {{.gpu = 0, .link_bytes = 4e6, .keeps = true},
                                             {.gpu = 1, .link_bytes = 4e6, .keeps = true}};
  SimEngine engine(std::vector{model, model}, 64);
  std::vector<Completion> done;
  engine.EnqueueCollective(parts, copies, 0, 1);
  engine.AdvanceTo(0, done);
  engine.EnqueueKernel(0, 0, 0, Tiles(8, 100), 0, 2);
  engine.AdvanceTo(10'000'000, done);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].cookie, 2u);
  EXPECT_NEAR(static_cast<double>(done[0].time), 20'000 + 100, 2);
  EXPECT_GT(done[1].time, 40'000);
}

// Beside a collective there is one wave of tiles on the SMs that are left, and one tile more is
// another wave. Blocks that fill the links take a fifth of the tiles' rate.
TEST_F(SimEngineTest, ACollectiveHoldsTheSmsThatTheCostModelSays) {
  const DeviceModel model = PlainModel();
  const policies::Work work = {.runs_on = policies::RunsOn::kLinks, .link_bytes = 100000};
  const double held = policies::CostOf(model, work).sm_share * model.sm_count;
  EXPECT_EQ(held, policies::CollectiveSms(model));
  engine_.EnqueueCollective(std::vector<CollectivePart>{{.gpu = 0, .link_bytes = 100000}}, {}, 0,
                            1);
  const auto left = static_cast<int64_t>(model.sm_count - held);
  engine_.EnqueueKernel(0, 0, 0, Tiles(left, 100), 0, 2);
  engine_.EnqueueKernel(0, 0, 0, Tiles(left + 1, 100), 0, 3);
  Run();
  EXPECT_EQ(ends_[1], 1000);
  EXPECT_EQ(ends_[2], 100 / 0.8);
  EXPECT_EQ(ends_[3], 300 / 0.8);
}

// Where the links do not bound them, blocks take longer beside kernels, and not otherwise.
TEST_F(SimEngineTest, BlocksAndKernelsDisturbEachOther) {
  DeviceModel model = PlainModel();
  policies::TransportCurve& curve = model.transport_curves.Of(policies::Transport::kPeer, 2);
  const policies::TransportChoice four = {.transport = policies::Transport::kPeer, .sms = 4};
  const std::vector<CollectivePart> parts = {{.gpu = 0, .link_bytes = 1e5, .block_bytes = 1e5},
                                             {.gpu = 1, .link_bytes = 1e5, .block_bytes = 1e5}};
  for (const bool links_bound : {false, true}) {
    curve = {.bytes_per_s_per_sm = links_bound ? 1e12 : 10e9, .beside_gemm = 1.25};
    for (const bool beside : {false, true}) {
      SimEngine engine(std::vector{model, model}, 64);
      std::vector<Completion> done;
      engine.EnqueueCollective(parts, four, 0, 1);
      if (beside) engine.EnqueueKernel(0, 0, 0, Tiles(4, 1e6), 0, 2);
      engine.AdvanceTo(100'000'000, done);
      const policies::Work work = {.ranks = 2, .link_bytes = 100'000};
      const double alone_ns = 1e3 * policies::TransportUs(model, work, 100'000, four);
      const double times = beside && !links_bound ? 1.25 : 1;
      EXPECT_NEAR(static_cast<double>(done[0].time), times * alone_ns, 2) << links_bound << beside;
      const double filled = links_bound ? 1 : 0.4;
      if (beside) {
        EXPECT_NEAR(static_cast<double>(done[1].time), 1e6 + 0.2 * filled * alone_ns,
                    0.01 * alone_ns);
      }
    }
  }
}

TEST_F(SimEngineTest, CollectivesShareLinks) {
  std::vector<CollectivePart> parts = {{.gpu = 0, .link_bytes = 10000},
                                       {.gpu = 1, .link_bytes = 10000}};
  engine_.EnqueueCollective(parts, {}, 0, 1);
  for (CollectivePart& part : parts) part.lane = kHighCollectiveLane;
  engine_.EnqueueCollective(parts, {}, 0, 2);
  Run();
  EXPECT_EQ(ends_[1], 200);
  EXPECT_EQ(ends_[2], 200);
  EXPECT_EQ(engine_.CollectiveRoom(), 64) << "ended collectives free their place";
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

kernels::Op Gemm(uint32_t m, uint32_t n, uint32_t k) {
  kernels::Op op;
  op.work = {.m = m, .n = n, .k = k, .batch = 1};
  op.work.hbm_bytes = 2 * (uint64_t{m} * k + uint64_t{n} * k + uint64_t{m} * n);
  return op;
}

KernelShape ShapeOfAll(std::initializer_list<const kernels::Op*> ops) {
  return ShapeOf(DeviceModel{}, {ops.begin(), ops.size()});
}

TEST(KernelShapeTest, SplitsKWhenTilesAreFew) {
  const kernels::Op few = Gemm(16, 1024, 8192), many = Gemm(8192, 8192, 8192);
  EXPECT_EQ(ShapeOfAll({&few}).tiles, 8 * 16);
  EXPECT_EQ(ShapeOfAll({&few, &few}).tiles, 16 * 8) << "what the others need is not empty";
  EXPECT_EQ(ShapeOfAll({&many}).tiles, 64 * 64);
  EXPECT_EQ(ShapeOfAll({&many, &few}).tiles, 64 * 64 + 8);
  const kernels::Op huge = Gemm(1 << 24, 1 << 24, 8192);
  EXPECT_EQ(ShapeOfAll({&huge}).tiles, kMaxTiles) << "simulating takes bounded time";
}

// Of programs there is one model: alone a run takes what was predicted, on however few SMs.
TEST(KernelShapeTest, ARunOfAProgramTakesWhatWasPredicted) {
  for (const uint32_t sms : {1u, 40u, 132u}) {
    kernels::Op run;
    run.work = {.m = sms, .n = 1, .steps = 110, .run_us = 320, .hbm_bytes = 500'000'000};
    SimEngine engine(std::vector<DeviceModel>(1), 4);
    const KernelShape shape = ShapeOfAll({&run});
    EXPECT_EQ(shape.tiles, sms);
    engine.EnqueueKernel(0, 0, 0, shape, 0, /*cookie=*/1);
    std::vector<Completion> done;
    engine.AdvanceTo(1'000'000'000, done);
    ASSERT_EQ(done.size(), 1u);
    const double launch_ns = 1e3 * DeviceModel{}.launch_us;
    EXPECT_NEAR(static_cast<double>(done[0].time), 320'000 + launch_ns, 10) << sms;
  }
}

TEST(KernelShapeTest, TilesOfSeveralCostTheirMean) {
  const kernels::Op one = Gemm(8192, 8192, 1024), other = Gemm(8192, 8192, 4096);
  const KernelShape a = ShapeOfAll({&one}), b = ShapeOfAll({&other});
  const KernelShape both = ShapeOfAll({&one, &other});
  EXPECT_EQ(both.tiles, a.tiles + b.tiles);
  EXPECT_DOUBLE_EQ(both.tile_ns, (a.tile_ns + b.tile_ns) / 2);
  EXPECT_DOUBLE_EQ(both.tile_bytes, (a.tile_bytes + b.tile_bytes) / 2);
}

TEST(KernelShapeTest, AShallowTileCostsItsStartToo) {
  const kernels::Op deep = Gemm(8192, 8192, 8192), shallow = Gemm(8192, 8192, 1024);
  EXPECT_GT(ShapeOfAll({&shallow}).tile_ns, 1.1 * ShapeOfAll({&deep}).tile_ns / 8);
}

TEST(KernelShapeTest, Fp8MultipliesTwiceAsFast) {
  kernels::Op shallow = Gemm(8192, 8192, 4096), deep = Gemm(8192, 8192, 8192);
  const double bf16_ns = ShapeOfAll({&deep}).tile_ns - ShapeOfAll({&shallow}).tile_ns;
  shallow.work.dtype = deep.work.dtype = policies::Dtype::kFp8E4m3;
  EXPECT_NEAR(ShapeOfAll({&deep}).tile_ns - ShapeOfAll({&shallow}).tile_ns, bf16_ns / 2,
              1e-3 * bf16_ns);
}

// Two engines fed the same random work give the same completions, however time is cut into steps,
// and all resources are free at the end.
TEST(SimEngineRandomTest, DeterministicAndComplete) {
  for (uint64_t round = 0; round < 20; ++round) {
    const uint64_t seed = tests::Seed() + round;
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
            engine.EnqueueCopy(gpu, lane, at, random() % 10000000, cookie);
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
