#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_sample& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_SAMPLE;
  concert_sample_body& body = to->descriptor.body.sample;
  body.rows = op.rows;
  body.columns = op.columns;
  body.x = Operand("x", op.x, to);
  body.indices = Operand("indices", op.indices, to);
  body.temperatures = Operand("temperatures", op.temperatures, to);
  body.top_ks = Operand("top_ks", op.top_ks, to);
  body.top_ps = Operand("top_ps", op.top_ps, to);
  body.seeds = Operand("seeds", op.seeds, to);
  body.steps = Operand("steps", op.steps, to);
  body.x_stride = OrTight(op.x_stride, op.columns);
  body.seed = op.seed;
  body.temperature = op.temperature;
  body.top_p = op.top_p;
  body.top_k = op.top_k;
  body.dtype = Narrow8(op.dtype);
  body.index_dtype = Narrow8(op.index_dtype);
  body.step_dtype = Narrow8(op.step_dtype);
  to->features = CONCERT_FEATURE_STEP_OPS;
  to->needs = "the op is a sample";
}

}  // namespace
}  // namespace concert::client

int concert_submit_sample(concert_queue* queue, const concert_sample* op,
                          const concert_submit_options* options, concert_ticket* ticket,
                          concert_error* error) {
  return concert::client::Submit(queue, op, "concert_sample", concert::client::Encode, options,
                                 ticket, error);
}
