#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_argmax& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_ARGMAX;
  concert_argmax_body& body = to->descriptor.body.argmax;
  body.rows = op.rows;
  body.columns = op.columns;
  body.x = Operand("x", op.x, to);
  body.indices = Operand("indices", op.indices, to);
  body.x_stride = OrTight(op.x_stride, op.columns);
  body.dtype = Narrow8(op.dtype);
  body.index_dtype = Narrow8(op.index_dtype);
  to->features = CONCERT_FEATURE_MODEL_OPS;
  to->needs = "the op is an argmax";
}

}  // namespace
}  // namespace concert::client

int concert_submit_argmax(concert_queue* queue, const concert_argmax* op,
                          const concert_submit_options* options, concert_ticket* ticket,
                          concert_error* error) {
  return concert::client::Submit(queue, op, "concert_argmax", concert::client::Encode, options,
                                 ticket, error);
}
