#include <algorithm>
#include <cstdint>

#include "kernels/attention_prefill/attention_prefill_op.h"
#include "kernels/attention_prefill/prefill_tile.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/cuda_api/launch_kernel.h"

namespace concert::kernels::cuda {

// Without a budget a block for each tile, so that whoever is done early takes the next; those that
// take longest go first.
absl::Status LaunchAttentionPrefill(LaunchContext& context, const Op& op) {
  const AttentionPrefillArgs& args = op.attention_prefill;
  const AttentionDecodeArgs& attention = args.attention;
  const uint64_t items = PrefillTiles(args, PrefillRows(attention.head_dim)) * attention.kv_heads;
  const uint64_t places = uint64_t{kPrefillBlocksPerSm} * static_cast<uint64_t>(context.sm_budget);
  const uint64_t blocks = context.sm_budget > 0 ? std::min(items, places) : items;
  const size_t narrow = attention.cache.dtype == Dtype::kFp8E4m3 ? 1 : 0;
  CUlaunchAttribute early = OverlapsTheOneBefore();
  return LaunchKernelWith(
      {&early, context.begins_early ? 1u : 0u}, context.api.driver, context.gpu,
      context.kernels.attention_prefill[narrow][HeadDimIndex(attention.head_dim)],
      static_cast<unsigned>(blocks), kPrefillThreads, context.stream, args,
      PrefillSharedBytes(attention.head_dim));
}

}  // namespace concert::kernels::cuda
