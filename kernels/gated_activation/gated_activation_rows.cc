#include "kernels/cuda_api/kernel_image.h"
#include "kernels/gated_activation/gated_activation_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerGatedActivation(const Op& op, RowTask& task) {
  const GatedActivationArgs& args = op.gated_activation;
  const uint64_t width = 16 / DtypeBytes(args.dtype);
  task.kind = RowKind::kGatedActivation;
  task.dtype = static_cast<uint8_t>(DtypeIndex(args.dtype));
  task.wide = (args.x | args.out) % 16 == 0 &&
              (args.x_stride | args.out_stride | args.columns) % width == 0;
  task.gated_activation = {
      .x = reinterpret_cast<const void*>(args.x),
      .out = reinterpret_cast<void*>(args.out),
      .x_stride = args.x_stride,
      .out_stride = args.out_stride,
      .rows = args.rows,
      .columns = args.columns,
      .activation = static_cast<uint32_t>(args.activation),
      .interleaved = args.interleaved ? 1u : 0u,
  };
  const uint64_t packs = uint64_t{args.rows} * args.columns / (task.wide ? width : 1);
  return (packs + kRowComputeThreads - 1) / kRowComputeThreads;
}

}  // namespace concert::kernels::cuda
