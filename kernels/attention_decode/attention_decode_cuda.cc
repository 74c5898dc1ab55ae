#include <algorithm>
#include <cstdint>

#include "kernels/attention_decode/attention_decode_op.h"
#include "kernels/attention_decode/attention_kernel_args.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/cuda_api/launch_kernel.h"

namespace concert::kernels::cuda {
namespace {

// A chunk is worth what it costs to add it up.
constexpr uint64_t kMinChunkTokens = 512;
// Of a GPU as large as they come.
constexpr uint64_t kSms = 132;
// Blocks that are wanted in all: a few for each place there is, since rows differ in length and the
// last ones must not keep the GPU waiting.
constexpr uint64_t kWantedBlocks = 16 * kSms;

// Blocks of kAttentionWarps on an SM: as many as registers allow.
constexpr uint64_t BlocksPerSm(uint32_t head_dim) { return head_dim > 128 ? 2 : 3; }

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Cuts rows into chunks, as many as the workspace holds.
AttentionKernelArgs CutIntoChunks(const LaunchContext& context, const AttentionDecodeArgs& op,
                                  size_t op_count) {
  const uint64_t span = op.span_max(), rows = op_count * op.rows, heads = rows * op.q_heads;
  const uint64_t chunk_bytes = op.head_dim * sizeof(float) + sizeof(SoftmaxState);
  const uint64_t fit = context.workspace_bytes / (heads * chunk_bytes);
  const uint64_t wanted = CeilDiv(kWantedBlocks, rows * op.kv_heads);
  const uint64_t most = std::max<uint64_t>(1, std::min(fit, wanted));
  const uint64_t tokens = CeilDiv(span, std::min(most, CeilDiv(span, kMinChunkTokens)));
  const uint64_t chunks = CeilDiv(span, tokens);
  const uint64_t items = uint64_t{op.rows} * chunks * op.kv_heads;
  auto* sums = reinterpret_cast<float*>(context.workspace);
  return {
      .op = op,
      .op_count = static_cast<uint32_t>(op_count),
      .op_items = static_cast<uint32_t>(items),
      .chunk_tokens = static_cast<uint32_t>(tokens),
      .partials = {.chunks = static_cast<uint32_t>(chunks),
                   .sums = sums,
                   .states = reinterpret_cast<SoftmaxState*>(sums + heads * chunks * op.head_dim)},
      .there = nullptr,
      .places = {}};
}

}  // namespace

absl::Status LaunchAttentionDecode(LaunchContext& context, const Op& op) {
  const Op* const one[] = {&op};
  return LaunchAttentionDecodes(context, one, nullptr);
}

static_assert(kMaxTogether <= kMaxAttentionOps);

absl::Status LaunchAttentionDecodes(LaunchContext& context, std::span<const Op* const> ops,
                                    const uint32_t* there) {
  AttentionKernelArgs args = CutIntoChunks(context, ops[0]->attention_decode, ops.size());
  args.there = there;
  for (size_t i = 0; i < ops.size(); ++i) {
    const AttentionDecodeArgs& op = ops[i]->attention_decode;
    args.places[i] = {op.q, op.page_table, op.lengths, op.out, op.cache.k, op.cache.v};
  }
  const uint32_t head_dim = args.op.head_dim;
  const uint64_t items = uint64_t{args.op_count} * args.op_items;
  const bool limited = context.sm_budget > 0;
  const uint64_t sms = limited ? static_cast<uint64_t>(context.sm_budget) : kSms;
  const uint64_t blocks = limited ? std::min(items, BlocksPerSm(head_dim) * sms) : items;
  const int warps = items <= sms ? MostAttentionWarps(head_dim) : kAttentionWarps;
  const size_t narrow = args.op.cache.dtype == Dtype::kFp8E4m3 ? 1 : 0;
  const size_t dim = HeadDimIndex(head_dim);
  const auto launch = [&](CUfunction function, uint64_t count, int threads) {
    return LaunchKernel(context.api.driver, context.gpu, function, static_cast<unsigned>(count),
                        threads, context.stream, args);
  };
  absl::Status status = launch(context.kernels.attention_decode[narrow][dim], blocks, 32 * warps);
  if (!status.ok() || args.partials.chunks == 1) return status;
  const uint64_t heads = uint64_t{args.op_count} * args.op.rows * args.op.q_heads;
  return launch(context.kernels.attention_combine[dim], CeilDiv(heads, kCombineThreads / 32),
                kCombineThreads);
}

}  // namespace concert::kernels::cuda
