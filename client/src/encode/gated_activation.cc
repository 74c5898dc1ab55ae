#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_gated_activation& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_GATED_ACTIVATION;
  concert_gated_activation_body& body = to->descriptor.body.gated_activation;
  body.rows = op.rows;
  body.columns = op.columns;
  body.x = Operand("x", op.x, to);
  body.out = Operand("out", op.out, to);
  body.x_stride = OrTight(op.x_stride, 2 * uint64_t{op.columns});
  body.out_stride = OrTight(op.out_stride, op.columns);
  body.dtype = Narrow8(op.dtype);
  body.activation = Narrow8(op.activation);
  body.flags = Narrow16(op.flags);
  to->features = CONCERT_FEATURE_ROW_OPS;
  to->needs = "the op is a gated_activation";
}

}  // namespace
}  // namespace concert::client

int concert_submit_gated_activation(concert_queue* queue, const concert_gated_activation* op,
                                    const concert_submit_options* options, concert_ticket* ticket,
                                    concert_error* error) {
  return concert::client::Submit(queue, op, "concert_gated_activation", concert::client::Encode,
                                 options, ticket, error);
}
