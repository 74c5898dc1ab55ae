#include <algorithm>
#include <cstdint>

#include "kernels/attention_decode/attention_chunks.h"
#include "kernels/attention_decode/attention_decode_op.h"
#include "kernels/attention_decode/attention_kernel_args.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/cuda_api/launch_kernel.h"

namespace concert::kernels::cuda {
namespace {

// Blocks of kAttentionWarps on an SM: as many as registers and shared memory allow, but of heads of
// 64, of which there is room for six: with six for each of 64 SMs 16 rows of 8,192 tokens and 16
// heads took 152 us, with five, of which four had room, 144 (one H200).
constexpr uint64_t BlocksPerSm(uint32_t head_dim, uint32_t element_bytes) {
  if (head_dim > 128) return 2;
  return head_dim == 64 && AttendsByRing(head_dim, element_bytes) ? 5 : 3;
}

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// How many of a block's warps work on a chunk together: as many as find places, and no more, since
// they wait for each other at its end. A layer of ADR 36's passes, by one, two and four (one H200):
// 79.3, 74.7 us with 1,024 chunks; 143.5, 145.4 with 2,048; 90.5 by two and 87.6 by four with 256.
uint32_t WarpsEach(uint64_t items, int warps, uint64_t places) {
  auto each = static_cast<uint32_t>(warps);
  while (each > 1 && items * each > places * kAttentionWarps) each /= 2;
  return each;
}

AttentionKernelArgs CutIntoChunks(const LaunchContext& context, const AttentionDecodeArgs& op,
                                  size_t op_count) {
  const AttentionChunks chunks = ChunksOf(op, op_count, context.workspace_bytes);
  const uint64_t heads = op_count * op.rows * op.q_heads;
  auto* sums = reinterpret_cast<float*>(context.workspace);
  return {.op = op,
          .op_count = static_cast<uint32_t>(op_count),
          .op_items = static_cast<uint32_t>(op.rows * chunks.count * op.kv_heads),
          .chunk_tokens = static_cast<uint32_t>(chunks.tokens),
          .warps_each = 0,
          .partials = {.chunks = static_cast<uint32_t>(chunks.count),
                       .sums = sums,
                       .states = reinterpret_cast<SoftmaxState*>(sums + heads * chunks.count *
                                                                            op.head_dim)},
          .there = nullptr,
          .releases_next = false,
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
  args.releases_next = context.releases_next;
  for (size_t i = 0; i < ops.size(); ++i) {
    const AttentionDecodeArgs& op = ops[i]->attention_decode;
    args.places[i] = {op.q, op.page_table, op.lengths, op.out, op.cache.k, op.cache.v};
  }
  const uint32_t head_dim = args.op.head_dim;
  const uint64_t items = uint64_t{args.op_count} * args.op_items;
  const bool limited = context.sm_budget > 0;
  const uint64_t sms = limited ? static_cast<uint64_t>(context.sm_budget) : kAttentionSms;
  const auto element_bytes = static_cast<uint32_t>(DtypeBytes(args.op.cache.dtype));
  const int warps = items <= sms ? MostAttentionWarps(head_dim) : kAttentionWarps;
  args.warps_each = WarpsEach(items, warps, BlocksPerSm(head_dim, element_bytes) * sms);
  const uint64_t wanted = CeilDiv(items * args.warps_each, static_cast<uint64_t>(warps));
  const uint64_t blocks =
      limited ? std::min(wanted, BlocksPerSm(head_dim, element_bytes) * sms) : wanted;
  const size_t narrow = element_bytes == 1 ? 1 : 0, dim = HeadDimIndex(head_dim);
  CUlaunchAttribute early = OverlapsTheOneBefore();
  const auto launch = [&](CUfunction function, uint64_t count, int threads, uint32_t shared) {
    return LaunchKernelWith({&early, context.begins_early ? 1u : 0u}, context.api.driver,
                            context.gpu, function, static_cast<unsigned>(count), threads,
                            context.stream, args, shared);
  };
  absl::Status status = launch(context.kernels.attention_decode[narrow][dim], blocks, 32 * warps,
                               AttentionSharedBytes(head_dim, element_bytes, warps));
  if (!status.ok() || args.partials.chunks == 1) return status;
  const uint64_t heads = uint64_t{args.op_count} * args.op.rows * args.op.q_heads;
  return launch(context.kernels.attention_combine[dim], CeilDiv(heads, kCombineThreads / 32),
                kCombineThreads, 0);
}

}  // namespace concert::kernels::cuda
