#include "client/src/encode/attention.h"
#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_attention_decode& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_ATTENTION_DECODE;
  concert_attention_decode_body& body = to->descriptor.body.attention_decode;
  body.rows = op.rows;
  EncodeAttention(op, body, to);
  to->features = CONCERT_FEATURE_MODEL_OPS;
  to->needs = "the op is an attention_decode";
  EncodeCacheElements(op, body, to);
}

}  // namespace
}  // namespace concert::client

int concert_submit_attention_decode(concert_queue* queue, const concert_attention_decode* op,
                                    const concert_submit_options* options, concert_ticket* ticket,
                                    concert_error* error) {
  return concert::client::Submit(queue, op, "concert_attention_decode", concert::client::Encode,
                                 options, ticket, error);
}
