// What the host hands to the kernels of attention_decode. Shared by host and device code.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_KERNEL_ARGS_H_
#define CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_KERNEL_ARGS_H_

#include <cstdint>

#include "kernels/attention_decode/attention_decode_args.h"

namespace concert::kernels::cuda {

// Warps of a block: what waits for its first tokens, or has its last behind it, is hidden by other
// blocks of the SM, so there should be several. Passes of eight rows by eight, one H100, 512 tokens
// of 16 heads of 64, and 1,024 of 2 of 128: 53 and 35 us, with six warps and two blocks 57 and 43
// (without rings).
inline constexpr int kAttentionWarps = 4;
// Where each block has an SM to itself: 16 heads of 64 by 8 rows take 11.8 us instead of 13.9.
// Of heads of 256 a thread has as many registers as there are, and eight warps would have all of an
// SM's.
CONCERT_ON_BOTH_SIDES constexpr int MostAttentionWarps(uint32_t head_dim) {
  return head_dim > 128 ? kAttentionWarps : 2 * kAttentionWarps;
}
// Whether keys and values come through shared memory (ring_attention.cuh).
CONCERT_ON_BOTH_SIDES constexpr bool AttendsByRing(uint32_t head_dim, uint32_t element_bytes) {
  return head_dim <= 128 && element_bytes == 2;
}
// Of each warp's ring then: what a block does not take other blocks have, also those of the launch
// behind. Passes of ADR 36 took 76, 148 and 87 us a layer with two slots, 77, 149 and 97 with
// three; with 32 tokens of 64 elements in each of two 74, 139 and 87 instead of 73, 138 and 87 (one
// H200).
inline constexpr uint32_t kAttentionSlots = 2, kAttentionSlotTokens = 16;
// Of a warp; 0: it has none.
CONCERT_ON_BOTH_SIDES constexpr uint32_t AttentionRingBytes(uint32_t head_dim,
                                                            uint32_t element_bytes) {
  const uint32_t token_bytes = 2 * head_dim * element_bytes;
  return AttendsByRing(head_dim, element_bytes)
             ? kAttentionSlots * kAttentionSlotTokens * token_bytes
             : 0;
}
// Dynamic shared memory of a warp: its ring, of which its result, of as many heads as share one of
// the cache's, takes the place once there are no more tokens. What a block leaves, others have, and
// those of the launch behind.
CONCERT_ON_BOTH_SIDES constexpr uint32_t AttentionWarpBytes(uint32_t head_dim,
                                                            uint32_t element_bytes) {
  const uint32_t state_bytes = 8, result = kMaxHeadGroup * (head_dim * 4 + state_bytes);
  const uint32_t ring = AttentionRingBytes(head_dim, element_bytes);
  return ring > result ? ring : result;
}
constexpr uint32_t AttentionSharedBytes(uint32_t head_dim, uint32_t element_bytes, int warps) {
  return static_cast<uint32_t>(warps) * AttentionWarpBytes(head_dim, element_bytes);
}
// SMs of a GPU as large as they come.
inline constexpr uint64_t kAttentionSms = 132;
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
  uint32_t warps_each;         // of a block's, that work on a chunk together; they divide its warps
  AttentionPartials partials;  // of all rows
  // Op i does nothing where bit i is 0. Null: all are there.
  const uint32_t* there;
  bool releases_next;  // LaunchContext::releases_next
  AttentionPlaces places[kMaxAttentionOps];
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_KERNEL_ARGS_H_
