// An op of the row kernel, whatever its kind.
#ifndef CONCERT_KERNELS_ROWS_ROW_COMPUTE_CUH_
#define CONCERT_KERNELS_ROWS_ROW_COMPUTE_CUH_

#include "kernels/advance/advance.cuh"
#include "kernels/argmax/argmax.cuh"
#include "kernels/elementwise/elementwise.cuh"
#include "kernels/embedding/embedding.cuh"
#include "kernels/gated_activation/gated_activation.cuh"
#include "kernels/layer_norm/layer_norm.cuh"
#include "kernels/quantize/quantize.cuh"
#include "kernels/rms_norm/rms_norm.cuh"
#include "kernels/rope_append/rope_append.cuh"
#include "kernels/rows/row_args.h"
#include "kernels/sample/sample.cuh"

namespace concert::kernels::cuda {

// Of a step: called from its kernel, which has few registers left (with two packs at a time its
// layers took 15 % longer, one H200), and caches are not in e4m3.
template <typename T, int kWidth, bool kOfStep>
__device__ __forceinline__ void ComputeRow(const RowTask& task, uint32_t block, uint32_t blocks) {
  // 2,048 x 5,632 gates of bf16 by two and by four: 25 and 33 us (one H200).
  constexpr int kPacksAtOnce = kOfStep ? 1 : 2;
  switch (task.kind) {
    case RowKind::kRmsNorm:
      return RmsNorm<T, kWidth>(task.rms_norm, block, blocks);
    case RowKind::kGatedActivation:
      return GatedActivation<T, kWidth, kPacksAtOnce>(task.gated_activation, block, blocks);
    case RowKind::kEmbedding:
      return Embedding<T, kWidth>(task.embedding, block, blocks);
    case RowKind::kArgmax:
      return Argmax<T, kWidth>(task.argmax, block, blocks);
    case RowKind::kRopeAppend:
      return RopeAppend<T, kWidth, /*kNarrowCaches=*/!kOfStep>(task.rope_append, block, blocks);
    case RowKind::kLayerNorm:
      return LayerNorm<T, kWidth>(task.layer_norm, block, blocks);
    case RowKind::kElementwise:
      return Elementwise<T, kWidth>(task.elementwise, block, blocks);
    case RowKind::kAdvance:
      return Advance(task.advance, block, blocks);
    case RowKind::kQuantize:
      return Quantize<T, kWidth>(task.quantize, block, blocks);
    case RowKind::kSample:
      return Sample<T, kWidth>(task.sample, block, blocks);
  }
}

template <typename T, bool kOfStep>
__device__ __forceinline__ void ComputeRowElements(const RowTask& task, uint32_t block,
                                                   uint32_t blocks) {
  if (task.wide) return ComputeRow<T, 16 / sizeof(T), kOfStep>(task, block, blocks);
  ComputeRow<T, 1, kOfStep>(task, block, blocks);
}

// What falls to block `block` of `blocks` of a task, by kRowComputeThreads threads. Inlined, so
// that what the task says is read from where parameters are.
template <bool kOfStep>
__device__ __forceinline__ void ComputeRowTask(const RowTask& task, uint32_t block,
                                               uint32_t blocks) {
  switch (task.dtype) {
    case Dtype::kBf16:
      return ComputeRowElements<__nv_bfloat16, kOfStep>(task, block, blocks);
    case Dtype::kFp16:
      return ComputeRowElements<__half, kOfStep>(task, block, blocks);
    default:
      return ComputeRowElements<float, kOfStep>(task, block, blocks);
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ROWS_ROW_COMPUTE_CUH_
