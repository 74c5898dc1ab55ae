// How collectives share SMs, links and memory with one another and with kernels.
#include <algorithm>
#include <vector>

#include "policies/cost/collective_cost.h"
#include "policies/cost/cost_model.h"
#include "tests/unit/sim/sim_engine_fixture.h"

namespace concert::daemon::sim {
namespace {

using policies::kCollectiveLane;
using policies::kHighCollectiveLane;

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

}  // namespace
}  // namespace concert::daemon::sim
