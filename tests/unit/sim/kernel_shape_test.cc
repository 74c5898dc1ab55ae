// What kernels are to the simulator: tiles, their times and their bytes.
#include <initializer_list>
#include <vector>

#include "tests/unit/sim/sim_engine_fixture.h"

namespace concert::daemon::sim {
namespace {

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

}  // namespace
}  // namespace concert::daemon::sim
