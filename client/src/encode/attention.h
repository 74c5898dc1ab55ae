// What descriptors of attention over a cache have in common.
#ifndef CONCERT_CLIENT_SRC_ENCODE_ATTENTION_H_
#define CONCERT_CLIENT_SRC_ENCODE_ATTENTION_H_

#include <cstdint>

#include "client/src/encode/fields.h"
#include "client/src/encode/kv_cache.h"

namespace concert::client {

// concert.h: strides of 0 are those of heads side by side, without gaps.
template <typename Op, typename Body>
void EncodeAttention(const Op& op, Body& body, EncodedOp* to) {
  body.length_max = op.length_max;
  body.q_heads = Narrow16(op.q_heads);
  body.kv_heads = Narrow16(op.kv_heads);
  body.head_dim = Narrow16(op.head_dim);
  body.q = Operand("q", op.q, to);
  body.page_table = Operand("page_table", op.page_table, to);
  body.lengths = Operand("lengths", op.lengths, to);
  body.out = Operand("out", op.out, to);
  body.cache = Cache(op.cache, body.kv_heads, body.head_dim, to);
  const uint32_t columns = uint32_t{body.q_heads} * body.head_dim;
  body.q_stride = op.q_stride != 0 ? op.q_stride : columns;
  body.out_stride = op.out_stride != 0 ? op.out_stride : columns;
  body.table_stride = op.table_stride;
  body.window = op.window;
  body.scale = op.scale;
  body.soft_cap = op.soft_cap;
  body.dtype = Narrow8(op.dtype);
}

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENCODE_ATTENTION_H_
