#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

int Encode(const concert_advance& op, EncodedOp* to, concert_error* error) {
  if (int code = CheckOrigins({&op.counters, &op.slots}, error)) return code;
  to->descriptor.kind = CONCERT_OP_ADVANCE;
  concert_advance_body& body = to->descriptor.body.advance;
  body.rows = op.rows;
  body.counter_max = op.counter_max;
  body.counters = Operand(op.counters);
  body.slots = Operand(op.slots);
  body.counter_dtype = Narrow8(op.counter_dtype);
  body.slot_dtype = Narrow8(op.slot_dtype);
  to->features = CONCERT_FEATURE_STEP_OPS;
  to->needs = "the op is an advance";
  return CONCERT_OK;
}

}  // namespace
}  // namespace concert::client

int concert_submit_advance(concert_queue* queue, const concert_advance* op,
                           const concert_submit_options* options, concert_ticket* ticket,
                           concert_error* error) {
  return concert::client::Submit(queue, op, "concert_advance", concert::client::Encode, options,
                                 ticket, error);
}
