#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_embedding& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_EMBEDDING;
  concert_embedding_body& body = to->descriptor.body.embedding;
  body.rows = op.rows;
  body.columns = op.columns;
  body.vocabulary = op.vocabulary;
  body.ids = Operand("ids", op.ids, to);
  body.table = Operand("table", op.table, to);
  body.out = Operand("out", op.out, to);
  body.table_stride = OrTight(op.table_stride, op.columns);
  body.out_stride = OrTight(op.out_stride, op.columns);
  body.dtype = Narrow8(op.dtype);
  body.index_dtype = Narrow8(op.index_dtype);
  to->features = CONCERT_FEATURE_MODEL_OPS;
  to->needs = "the op is an embedding";
}

}  // namespace
}  // namespace concert::client

int concert_submit_embedding(concert_queue* queue, const concert_embedding* op,
                             const concert_submit_options* options, concert_ticket* ticket,
                             concert_error* error) {
  return concert::client::Submit(queue, op, "concert_embedding", concert::client::Encode, options,
                                 ticket, error);
}
