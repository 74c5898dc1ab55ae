#include "client/src/encode/attention.h"
#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_attention_prefill& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_ATTENTION_PREFILL;
  concert_attention_prefill_body& body = to->descriptor.body.attention_prefill;
  body.tokens = op.tokens;
  body.sequences = op.sequences;
  body.query_starts = Operand("query_starts", op.query_starts, to);
  EncodeAttention(op, body, to);
  to->features = CONCERT_FEATURE_STEP_OPS;
  to->needs = "the op is an attention_prefill";
  EncodeCacheElements(op, body, to);
}

}  // namespace
}  // namespace concert::client

int concert_submit_attention_prefill(concert_queue* queue, const concert_attention_prefill* op,
                                     const concert_submit_options* options, concert_ticket* ticket,
                                     concert_error* error) {
  return concert::client::Submit(queue, op, "concert_attention_prefill", concert::client::Encode,
                                 options, ticket, error);
}
