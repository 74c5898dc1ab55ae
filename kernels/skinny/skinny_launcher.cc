#include "kernels/skinny/skinny_launcher.h"

#include <array>

#include "kernels/cuda_api/launch_kernel.h"
#include "kernels/skinny/skinny_args.h"

namespace concert::kernels::cuda {
namespace {

// Of `rows` rows of k elements; a box has `box_rows` of them. What lies behind the last row is
// zeros.
absl::Status Encode(const LaunchContext& context, Address begin, uint32_t rows, uint64_t stride,
                    uint32_t k, uint32_t box_rows, CUtensorMap& map) {
  const cuuint64_t sizes[] = {k, rows}, strides[] = {stride * 2};
  const cuuint32_t box[] = {kSkinnyStep, box_rows}, steps[] = {1, 1};
  const CUresult result = context.api.driver.cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, reinterpret_cast<void*>(begin), sizes, strides,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return context.api.driver.ToStatus(result, "cuTensorMapEncodeTiled", context.gpu);
}

}  // namespace

absl::StatusOr<SkinnyTiling> TilingOn(const LaunchContext& context, const SkinnyGemm& skinny) {
  const Driver& driver = context.api.driver;
  CUdevice device;
  int sm_count = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuDeviceGet, &device, context.gpu);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuDeviceGetAttribute, &sm_count,
                                 CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  const uint32_t group = skinny.rope.parts != 0 ? skinny.rope.op.head_dim : 32;
  return TilingOf(skinny.gemm.n, skinny.gemm.k, sm_count, group);
}

absl::Status LaunchSkinny(const LaunchContext& context, const SkinnyGemm& skinny,
                          SkinnyTiling tiling, bool weights_ahead) {
  const GemmArgs& gemm = skinny.gemm;
  const bool is_normed = skinny.a_normed.rows != 0;
  const Address a = is_normed ? skinny.a_normed.rows : gemm.a;
  const uint64_t lda = is_normed ? gemm.k : gemm.lda;
  SkinnyArgs args{};
  args.skinny = skinny;
  args.parts = tiling.parts;
  args.wide = (gemm.c | gemm.d | gemm.bias) % 8 == 0 && (gemm.ldc | gemm.ldd) % 4 == 0 &&
              gemm.d_columns() % 4 == 0 && (skinny.d_normed.rows | skinny.d_gain) % 8 == 0;
  if (absl::Status status = Encode(context, a, gemm.m, lda, gemm.k, kMaxSkinnyRows, args.a);
      !status.ok()) {
    return status;
  }
  if (absl::Status status =
          Encode(context, gemm.w, gemm.n, gemm.ldw, gemm.k, tiling.columns / 2, args.w);
      !status.ok()) {
    return status;
  }
  std::array<CUlaunchAttribute, 2> attributes = {BlocksInClusters(tiling.parts),
                                                 OverlapsTheOneBefore()};
  return LaunchKernelWith(std::span(attributes).first(weights_ahead ? 2 : 1), context.api.driver,
                          context.gpu, context.kernels.skinny[tiling.columns / 32 - 1],
                          tiling.TilesOf(gemm.n) * tiling.parts, kSkinnyThreads, context.stream,
                          args, SkinnySharedBytes(tiling.columns));
}

}  // namespace concert::kernels::cuda
