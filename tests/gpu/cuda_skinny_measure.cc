// What GEMMs of few rows take in every tiling of the skinny kernel, and by cuBLASLt: a line each.
// The figures of docs/adr/0036-gemms-of-few-rows.md are its.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "kernels/gemm/gemm_op.h"
#include "tests/gpu/skinny_fixture.h"

namespace concert::test {
namespace {

using kernels::SkinnyTiling;

struct Shape {
  uint32_t m, n, k;
};
// Of models with hidden sizes of 896, 1024, 1536, 2048 and 4096.
constexpr Shape kShapes[] = {
    {64, 3072, 1024},  {64, 1024, 1024},  {64, 5632, 1024}, {64, 1024, 2816},  {64, 6144, 2048},
    {64, 2048, 2048},  {64, 11264, 2048}, {64, 2048, 5632}, {64, 17920, 1536}, {64, 1536, 8960},
    {64, 28672, 4096}, {64, 4096, 14336}, {32, 9728, 896},  {16, 896, 4864},   {8, 3072, 1024},
};

class GpuSkinnyMeasure : public GpuSkinnyTestBase {
 protected:
  static constexpr int kRounds = 5;
  static constexpr uint64_t kWeightBytes = uint64_t{1} << 30;  // of what a graph reads, at most
  static constexpr uint64_t kMatrixBytes = 8 << 20;

  void SetUp() override {
    GpuSkinnyTestBase::SetUp();
    if (IsSkipped()) return;
    const char* const path = std::getenv("CONCERT_MEASURE_SKINNY");
    if (path == nullptr) GTEST_SKIP() << "CONCERT_MEASURE_SKINNY names no file to write to";
    file_ = std::fopen(path, "w");
    ASSERT_NE(file_, nullptr) << path;
    std::fputs("m,n,k,columns,parts,us\n", file_);
    const absl::StatusOr<Allocation> weights = device().Allocate(kWeightBytes);
    ASSERT_OK(weights.status());
    weights_ = *weights;
    close(weights_.export_fd);
    matrices_ = std::make_unique<HostMirror>(device(), 2 * kMatrixBytes, 0);
  }
  void TearDown() override {
    if (file_ != nullptr) std::fclose(file_);
    matrices_.reset();
    if (weights_.address != 0) device().Free(weights_);
    GpuSkinnyTestBase::TearDown();
  }

  // A graph of launches one behind the other, of weights that come from memory.
  void Measure(const Shape& shape, SkinnyTiling tiling) {
    const uint64_t bytes = uint64_t{shape.n} * shape.k * 2;
    const int launches = static_cast<int>(std::clamp<uint64_t>(kWeightBytes / bytes, 4, 40));
    const kernels::cuda::Driver& driver = api_->driver;
    kernels::cuda::LaunchContext context = Context();
    ASSERT_EQ(driver.cuStreamBeginCapture(context.stream, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
    absl::Status status;
    for (int i = 0; i < launches && status.ok(); ++i) {
      Op op = SquareGemm(matrices_->address(), weights_.address + i * bytes,
                         matrices_->address() + kMatrixBytes, 1);
      op.gemm.m = shape.m, op.gemm.n = shape.n, op.gemm.k = shape.k;
      op.gemm.lda = op.gemm.ldw = shape.k, op.gemm.ldd = shape.n;
      status = tiling.columns == 0 ? kernels::cuda::LaunchGemm(context, op)
                                   : kernels::cuda::LaunchSkinny(context, {op.gemm}, tiling, i > 0);
    }
    CUgraph graph = nullptr;
    ASSERT_EQ(driver.cuStreamEndCapture(context.stream, &graph), CUDA_SUCCESS);
    ASSERT_OK(status);
    CUgraphExec executable = nullptr;
    ASSERT_EQ(driver.cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    double best_us = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = Clock::now();
      for (int i = 0; i < 4; ++i)
        ASSERT_EQ(driver.cuGraphLaunch(executable, context.stream), CUDA_SUCCESS);
      ASSERT_EQ(driver.cuStreamSynchronize(context.stream), CUDA_SUCCESS);
      const double us = MicrosecondsSince(begin) / (4 * launches);
      if (round == 0 || us < best_us) best_us = us;
    }
    driver.cuGraphExecDestroy(executable);
    driver.cuGraphDestroy(graph);
    std::fprintf(file_, "%u,%u,%u,%u,%u,%.2f\n", shape.m, shape.n, shape.k, tiling.columns,
                 tiling.parts, best_us);
    std::fflush(file_);
  }

  std::FILE* file_ = nullptr;
  Allocation weights_;
  std::unique_ptr<HostMirror> matrices_;
};

TEST_F(GpuSkinnyMeasure, Tilings) {
  const uint32_t sms = static_cast<uint32_t>(device().info().model.sm_count);
  for (const Shape& shape : kShapes) {
    ASSERT_NO_FATAL_FAILURE(Measure(shape, {}));
    for (const uint32_t columns : {32u, 64u, 96u, 128u}) {
      for (uint32_t parts = 1; parts <= kernels::kMaxSkinnyParts; ++parts) {
        const SkinnyTiling tiling = {columns, parts};
        const uint32_t blocks = tiling.TilesOf(shape.n) * parts;
        if (blocks < sms / 3 || (blocks > 4 * sms && parts > 1)) continue;
        ASSERT_NO_FATAL_FAILURE(Measure(shape, tiling));
      }
    }
  }
}

}  // namespace
}  // namespace concert::test
