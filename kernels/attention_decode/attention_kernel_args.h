// What the host hands to the kernels of attention_decode. Shared by host and device code.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_KERNEL_ARGS_H_
#define CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_KERNEL_ARGS_H_

#include <cstdint>

#include "kernels/attention_decode/attention_decode_args.h"

namespace concert::kernels::cuda {

// Of a block. A lane needs all registers that there are for heads of 256, and so do warps' results
// of a block's static shared memory, of which there are 48 KB.
CONCERT_ON_BOTH_SIDES constexpr int AttentionThreads(uint32_t head_dim) {
  return head_dim > 128 ? 128 : 192;
}
inline constexpr int kAttentionBlocksPerSm = 2;
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
  uint32_t chunk_tokens;
  AttentionPartials partials;  // of all rows
  // Op i does nothing where bit i is 0. Null: all are there.
  const uint32_t* there;
  AttentionPlaces places[kMaxAttentionOps];
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_KERNEL_ARGS_H_
