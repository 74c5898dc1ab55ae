#include "client/src/encode/fields.h"
#include "client/src/encode/kv_cache.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_rope_append& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_ROPE_APPEND;
  concert_rope_append_body& body = to->descriptor.body.rope_append;
  body.rows = op.rows;
  body.positions_max = op.positions_max;
  body.q_heads = Narrow16(op.q_heads);
  body.kv_heads = Narrow16(op.kv_heads);
  body.head_dim = Narrow16(op.head_dim);
  body.rotary_dim = op.rotary_dim != 0 ? Narrow16(op.rotary_dim) : body.head_dim;
  body.q = Operand("q", op.q, to);
  body.k = Operand("k", op.k, to);
  body.v = Operand("v", op.v, to);
  body.positions = Operand("positions", op.positions, to);
  body.slots = Operand("slots", op.slots, to);
  body.cos_sin = Operand("cos_sin", op.cos_sin, to);
  body.cache = Cache(op.cache, body.kv_heads, body.head_dim, to);
  const uint32_t q_columns = uint32_t{body.q_heads} * body.head_dim;
  const uint32_t kv_columns = uint32_t{body.kv_heads} * body.head_dim;
  body.q_stride = op.q_stride != 0 ? op.q_stride : q_columns;
  body.k_stride = op.k_stride != 0 ? op.k_stride : kv_columns;
  body.v_stride = op.v_stride != 0 ? op.v_stride : kv_columns;
  body.dtype = Narrow8(op.dtype);
  body.position_dtype = Narrow8(op.position_dtype);
  body.slot_dtype = Narrow8(op.slot_dtype);
  body.flags = Narrow16(op.flags);
  to->features = CONCERT_FEATURE_MODEL_OPS;
  to->needs = "the op is a rope_append";
  EncodeCacheElements(op, body, to);
}

}  // namespace
}  // namespace concert::client

int concert_submit_rope_append(concert_queue* queue, const concert_rope_append* op,
                               const concert_submit_options* options, concert_ticket* ticket,
                               concert_error* error) {
  return concert::client::Submit(queue, op, "concert_rope_append", concert::client::Encode, options,
                                 ticket, error);
}
