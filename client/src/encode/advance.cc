#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_advance& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_ADVANCE;
  concert_advance_body& body = to->descriptor.body.advance;
  body.rows = op.rows;
  body.counter_max = op.counter_max;
  body.counters = Operand("counters", op.counters, to);
  body.slots = Operand("slots", op.slots, to);
  body.counter_dtype = Narrow8(op.counter_dtype);
  body.slot_dtype = Narrow8(op.slot_dtype);
  to->features = CONCERT_FEATURE_STEP_OPS;
  to->needs = "the op is an advance";
}

}  // namespace
}  // namespace concert::client

int concert_submit_advance(concert_queue* queue, const concert_advance* op,
                           const concert_submit_options* options, concert_ticket* ticket,
                           concert_error* error) {
  return concert::client::Submit(queue, op, "concert_advance", concert::client::Encode, options,
                                 ticket, error);
}
