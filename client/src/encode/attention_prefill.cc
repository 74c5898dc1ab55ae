#include "client/src/encode/fields.h"
#include "client/src/encode/kv_cache.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

int Encode(const concert_attention_prefill& op, EncodedOp* to, concert_error* error) {
  if (int code = CheckOrigins(
          {&op.q, &op.query_starts, &op.page_table, &op.lengths, &op.out, &op.cache.k, &op.cache.v},
          error)) {
    return code;
  }
  to->descriptor.kind = CONCERT_OP_ATTENTION_PREFILL;
  concert_attention_prefill_body& body = to->descriptor.body.attention_prefill;
  body.tokens = op.tokens;
  body.sequences = op.sequences;
  body.length_max = op.length_max;
  body.q_heads = Narrow16(op.q_heads);
  body.kv_heads = Narrow16(op.kv_heads);
  body.head_dim = Narrow16(op.head_dim);
  body.q = Operand(op.q);
  body.query_starts = Operand(op.query_starts);
  body.page_table = Operand(op.page_table);
  body.lengths = Operand(op.lengths);
  body.out = Operand(op.out);
  body.cache = Cache(op.cache, body.kv_heads, body.head_dim);
  const uint32_t columns = uint32_t{body.q_heads} * body.head_dim;
  body.q_stride = op.q_stride != 0 ? op.q_stride : columns;
  body.out_stride = op.out_stride != 0 ? op.out_stride : columns;
  body.table_stride = op.table_stride;
  body.window = op.window;
  body.scale = op.scale;
  body.soft_cap = op.soft_cap;
  body.dtype = Narrow8(op.dtype);
  to->features = CONCERT_FEATURE_STEP_OPS;
  to->needs = "the op is an attention_prefill";
  return CONCERT_OK;
}

}  // namespace
}  // namespace concert::client

int concert_submit_attention_prefill(concert_queue* queue, const concert_attention_prefill* op,
                                     const concert_submit_options* options, concert_ticket* ticket,
                                     concert_error* error) {
  return concert::client::Submit(queue, op, "concert_attention_prefill", concert::client::Encode,
                                 options, ticket, error);
}
