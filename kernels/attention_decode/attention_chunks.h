// How decode attention cuts a row's tokens into chunks, each of which a block takes by itself, and
// what their sums take of memory. Pure.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_CHUNKS_H_
#define CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_CHUNKS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention_decode/attention_decode_args.h"
#include "kernels/op.h"

namespace concert::kernels {

struct AttentionChunks {
  uint64_t tokens = 0;  // of each
  uint64_t count = 0;   // of a row; 1: there is nothing to add up, and so no memory is used
};

// Of so many ops that go together (AttentionDecodeGoesWith), in as much memory as there is.
AttentionChunks ChunksOf(const AttentionDecodeArgs& op, size_t op_count, uint64_t workspace_bytes);

// OpKind::workspace_bytes: what one op by itself is cut by as if memory were no matter. Several ops
// that go together are cut no finer.
uint64_t WorkspaceBytesOfAttentionDecode(const Op& op);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_CHUNKS_H_
