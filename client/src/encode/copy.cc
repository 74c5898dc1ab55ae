#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"

namespace concert::client {
namespace {

void Encode(const concert_copy& op, EncodedOp* to) {
  to->descriptor.kind = CONCERT_OP_COPY;
  concert_copy_body& body = to->descriptor.body.copy;
  body.src = Operand("src", op.src, to);
  body.dst = Operand("dst", op.dst, to);
  body.bytes = op.bytes;
}

}  // namespace
}  // namespace concert::client

int concert_submit_copy(concert_queue* queue, const concert_copy* op,
                        const concert_submit_options* options, concert_ticket* ticket,
                        concert_error* error) {
  return concert::client::Submit(queue, op, "concert_copy", concert::client::Encode, options,
                                 ticket, error);
}
