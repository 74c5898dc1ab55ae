// What the host hands to the kernels of attention_decode. Shared by host and device code.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_KERNEL_ARGS_H_
#define CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_KERNEL_ARGS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/attention_decode/attention_decode_args.h"

namespace concert::kernels::cuda {

// Warps of a block: what waits for its first tokens, or has its last behind it, is hidden by other
// blocks of the SM, so there should be several. Passes of eight rows by eight, one H100, 512 tokens
// of 16 heads of 64, and 1,024 of 2 of 128: 53 and 35 us, with six warps and two blocks 57 and 43
// (without rings).
inline constexpr int kAttentionWarps = 4;
// Where each block has an SM to itself: 16 heads of 64 by 8 rows take 11.8 us instead of 13.9.
// Warps' results of heads of 256 fill a block's static shared memory, of which there are 48 KB.
CONCERT_ON_BOTH_SIDES constexpr int MostAttentionWarps(uint32_t head_dim) {
  return head_dim > 128 ? kAttentionWarps : 2 * kAttentionWarps;
}
// Whether keys and values come through shared memory (ring_attention.cuh), and of each warp's ring
// the slots and their bytes: as many as let two blocks be on an SM.
CONCERT_ON_BOTH_SIDES constexpr bool AttendsByRing(uint32_t head_dim, uint32_t element_bytes) {
  return head_dim <= 128 && element_bytes == 2;
}
inline constexpr int kAttentionSlots = 3;
inline constexpr uint32_t kAttentionSlotBytes = 8192;
// Dynamic shared memory of a block: rings, and in their place the warps' results.
constexpr uint32_t AttentionSharedBytes(uint32_t head_dim, uint32_t element_bytes, int warps) {
  const uint32_t state_bytes = 8;
  const uint32_t results = static_cast<uint32_t>(MostAttentionWarps(head_dim)) * kMaxHeadGroup *
                           (head_dim * 4 + state_bytes);
  const uint32_t rings = static_cast<uint32_t>(warps * kAttentionSlots) * kAttentionSlotBytes;
  return AttendsByRing(head_dim, element_bytes) ? std::max(rings, results) : results;
}
// Of the launch that adds up chunks; a warp takes a head of a row.
inline constexpr int kCombineThreads = 128;

// What softmax over some of a row's tokens needs to be added to that of others: the largest score,
// times log2(e), and the sum of 2^(score - largest). No tokens: -inf and 0.
struct SoftmaxState {
  float largest, sum;
};

// Where the chunks of rows leave their sums, if a row has several: those of head h of row r and
// chunk c stand at (r * q_heads + h) * chunks + c, head_dim floats and one state.
struct AttentionPartials {
  uint32_t chunks;
  float* sums;
  SoftmaxState* states;
};

// Ops that go together.
inline constexpr uint32_t kMaxAttentionOps = 8;

// Where one of several ops that are alike has its operands.
struct AttentionPlaces {
  Address q, page_table, lengths, out, k, v;
};

// A row's tokens are cut into chunks of `chunk_tokens`, of which a block takes one for a head of
// the cache. Rows of all ops are one behind the other.
struct AttentionKernelArgs {
  AttentionDecodeArgs op;  // any of them
  uint32_t op_count;
  uint32_t op_items;  // chunks of an op, for each head of the cache
  uint32_t chunk_tokens;
  AttentionPartials partials;  // of all rows
  // Op i does nothing where bit i is 0. Null: all are there.
  const uint32_t* there;
  bool releases_next;  // LaunchContext::releases_next
  AttentionPlaces places[kMaxAttentionOps];
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_KERNEL_ARGS_H_
