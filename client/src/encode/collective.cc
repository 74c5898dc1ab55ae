#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"
#include "client/src/failure.h"

namespace concert::client {
namespace {

int Encode(const concert_collective& op, EncodedOp* to, concert_error* error) {
  if (op.communicator == nullptr) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "communicator is NULL");
  }
  if (op.communicator->origin.forked()) return FailForked("communicator", error);
  if (op.kind < CONCERT_ALL_REDUCE || op.kind > CONCERT_BARRIER) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "kind is %u; a collective is between %d and %d",
                op.kind, CONCERT_ALL_REDUCE, CONCERT_BARRIER);
  }
  if (int code = CheckOrigins({&op.src, &op.dst}, error)) return code;
  to->descriptor.kind = static_cast<uint16_t>(op.kind);
  to->communicator = op.communicator;
  concert_collective_body& body = to->descriptor.body.collective;
  body.root = op.root;
  body.count = op.count;
  body.src = Operand(op.src);
  body.dst = Operand(op.dst);
  body.dtype = Narrow8(op.dtype);
  body.reduction = Narrow8(op.reduction);
  return CONCERT_OK;
}

}  // namespace
}  // namespace concert::client

int concert_submit_collective(concert_queue* queue, const concert_collective* op,
                              const concert_submit_options* options, concert_ticket* ticket,
                              concert_error* error) {
  return concert::client::Submit(queue, op, "concert_collective", concert::client::Encode, options,
                                 ticket, error);
}
