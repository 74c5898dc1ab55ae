#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_rms_norm& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_RMS_NORM;
  concert_rms_norm_body& body = to->descriptor.body.rms_norm;
  body.rows = op.rows;
  body.columns = op.columns;
  body.x = Operand("x", op.x, to);
  body.residual = Operand("residual", op.residual, to);
  body.weight = Operand("weight", op.weight, to);
  body.out = Operand("out", op.out, to);
  body.x_stride = OrTight(op.x_stride, op.columns);
  body.residual_stride = OrTight(op.residual_stride, op.columns);
  body.out_stride = OrTight(op.out_stride, op.columns);
  body.epsilon = op.epsilon;
  body.dtype = Narrow8(op.dtype);
  body.flags = Narrow16(op.flags);
  to->features = CONCERT_FEATURE_ROW_OPS;
  to->needs = "the op is an rms_norm";
}

}  // namespace
}  // namespace concert::client

int concert_submit_rms_norm(concert_queue* queue, const concert_rms_norm* op,
                            const concert_submit_options* options, concert_ticket* ticket,
                            concert_error* error) {
  return concert::client::Submit(queue, op, "concert_rms_norm", concert::client::Encode, options,
                                 ticket, error);
}
