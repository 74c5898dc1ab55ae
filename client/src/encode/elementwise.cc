#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_elementwise& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_ELEMENTWISE;
  concert_elementwise_body& body = to->descriptor.body.elementwise;
  body.rows = op.rows;
  body.columns = op.columns;
  body.x = Operand("x", op.x, to);
  body.y = Operand("y", op.y, to);
  body.out = Operand("out", op.out, to);
  body.x_stride = OrTight(op.x_stride, op.columns);
  body.y_stride = op.y_stride == CONCERT_STRIDE_SHARED ? 0 : OrTight(op.y_stride, op.columns);
  body.out_stride = OrTight(op.out_stride, op.columns);
  body.function = Narrow8(op.function);
  body.dtype = Narrow8(op.dtype);
  body.out_dtype = op.out_dtype != 0 ? Narrow8(op.out_dtype) : body.dtype;
  to->features = CONCERT_FEATURE_MODEL_OPS;
  to->needs = "the op is elementwise";
}

}  // namespace
}  // namespace concert::client

int concert_submit_elementwise(concert_queue* queue, const concert_elementwise* op,
                               const concert_submit_options* options, concert_ticket* ticket,
                               concert_error* error) {
  return concert::client::Submit(queue, op, "concert_elementwise", concert::client::Encode, options,
                                 ticket, error);
}
