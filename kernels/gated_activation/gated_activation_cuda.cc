#include "kernels/cuda_api/launch_context.h"
#include "kernels/cuda_api/launch_kernel.h"
#include "kernels/gated_activation/gated_activation_args.h"
#include "kernels/gated_activation/gated_activation_op.h"

namespace concert::kernels::cuda {

absl::Status LaunchGatedActivation(LaunchContext& context, const Op& op) {
  const GatedActivationArgs& args = op.gated_activation;
  const uint64_t width = 16 / DtypeBytes(args.dtype);
  const bool wide = (args.x | args.out) % 16 == 0 &&
                    (args.x_stride | args.out_stride | args.columns) % width == 0;
  const GatedActivationKernelArgs kernel_args = {
      .x = reinterpret_cast<const void*>(args.x),
      .out = reinterpret_cast<void*>(args.out),
      .x_stride = args.x_stride,
      .out_stride = args.out_stride,
      .rows = args.rows,
      .columns = args.columns,
      .activation = static_cast<uint32_t>(args.activation),
      .interleaved = args.interleaved ? 1u : 0u,
  };
  const uint64_t packs = uint64_t{args.rows} * args.columns / (wide ? width : 1);
  return LaunchKernel(context.api.driver, context.gpu,
                      context.kernels.gated_activation[DtypeIndex(args.dtype)][wide],
                      BlocksFor(packs, kGatedActivationThreads, kMaxRowBlocks),
                      kGatedActivationThreads, context.stream, kernel_args);
}

}  // namespace concert::kernels::cuda
