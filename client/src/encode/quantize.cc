#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_quantize& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_QUANTIZE;
  concert_quantize_body& body = to->descriptor.body.quantize;
  body.rows = op.rows;
  body.columns = op.columns;
  body.x = Operand("x", op.x, to);
  body.out = Operand("out", op.out, to);
  body.scales = Operand("scales", op.scales, to);
  body.x_stride = OrTight(op.x_stride, op.columns);
  body.out_stride = OrTight(op.out_stride, op.columns);
  body.dtype = Narrow8(op.dtype);
  to->features = CONCERT_FEATURE_STEP_OPS;
  to->needs = "the op is a quantize";
}

}  // namespace
}  // namespace concert::client

int concert_submit_quantize(concert_queue* queue, const concert_quantize* op,
                            const concert_submit_options* options, concert_ticket* ticket,
                            concert_error* error) {
  return concert::client::Submit(queue, op, "concert_quantize", concert::client::Encode, options,
                                 ticket, error);
}
