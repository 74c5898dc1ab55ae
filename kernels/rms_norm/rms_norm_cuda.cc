#include "kernels/cuda_api/launch_context.h"
#include "kernels/cuda_api/launch_kernel.h"
#include "kernels/rms_norm/rms_norm_args.h"
#include "kernels/rms_norm/rms_norm_op.h"

namespace concert::kernels::cuda {

absl::Status LaunchRmsNorm(LaunchContext& context, const Op& op) {
  const RmsNormArgs& args = op.rms_norm;
  const uint64_t width = 16 / DtypeBytes(args.dtype);
  const uint64_t strides = args.x_stride | args.out_stride |
                           (args.residual != 0 ? args.residual_stride : 0) | args.columns;
  const bool wide =
      (args.x | args.residual | args.weight | args.out) % 16 == 0 && strides % width == 0;
  const RmsNormKernelArgs kernel_args = {
      .x = reinterpret_cast<const void*>(args.x),
      .weight = reinterpret_cast<const void*>(args.weight),
      .residual = reinterpret_cast<void*>(args.residual),
      .out = reinterpret_cast<void*>(args.out),
      .x_stride = args.x_stride,
      .residual_stride = args.residual_stride,
      .out_stride = args.out_stride,
      .rows = args.rows,
      .columns = args.columns,
      .epsilon = args.epsilon,
      .cast_first = args.cast_first ? 1u : 0u,
  };
  return LaunchKernel(
      context.api.driver, context.gpu, context.kernels.rms_norm[DtypeIndex(args.dtype)][wide],
      BlocksFor(args.rows, 1, kMaxRowBlocks), kRmsNormThreads, context.stream, kernel_args);
}

}  // namespace concert::kernels::cuda
