#include "kernels/cuda_api/kernel_image.h"
#include "kernels/rms_norm/rms_norm_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerRmsNorm(const Op& op, RowTask& task) {
  const RmsNormArgs& args = op.rms_norm;
  const uint64_t width = 16 / DtypeBytes(args.dtype);
  const uint64_t strides = args.x_stride | args.out_stride |
                           (args.residual != 0 ? args.residual_stride : 0) | args.columns;
  task.kind = RowKind::kRmsNorm;
  task.dtype = static_cast<uint8_t>(DtypeIndex(args.dtype));
  task.wide = (args.x | args.residual | args.weight | args.out) % 16 == 0 && strides % width == 0;
  task.rms_norm = {
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
  return args.rows;
}

}  // namespace concert::kernels::cuda
