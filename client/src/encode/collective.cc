#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"
#include "client/src/failure.h"

namespace concert::client {
namespace {

int CheckCommunicator(const concert_communicator* communicator, const concert_queue& queue,
                      concert_error* error) {
  CONCERT_REQUIRE_HANDLE(communicator);
  if (communicator->session == queue.session) return CONCERT_OK;
  return Fail(
      error, CONCERT_INVALID_ARGUMENT,
      "the communicator was joined by session %u, but the queue is of session %u; join with "
      "the queue's session",
      communicator->session->id(), queue.session->id());
}

void Encode(const concert_collective& op, EncodedOp* to) {
  to->refused = CheckCommunicator(op.communicator, to->queue, to->error);
  if (to->refused != CONCERT_OK) return;
  if (op.kind < CONCERT_ALL_REDUCE || op.kind > CONCERT_BARRIER) {
    to->refused =
        Fail(to->error, CONCERT_INVALID_ARGUMENT, "kind is %u; a collective is between %d and %d",
             op.kind, CONCERT_ALL_REDUCE, CONCERT_BARRIER);
    return;
  }
  to->descriptor.kind = static_cast<uint16_t>(op.kind);
  to->communicator = op.communicator;
  concert_collective_body& body = to->descriptor.body.collective;
  body.root = op.root;
  body.count = op.count;
  body.src = Operand("src", op.src, to);
  body.dst = Operand("dst", op.dst, to);
  body.dtype = Narrow8(op.dtype);
  body.reduction = Narrow8(op.reduction);
}

}  // namespace
}  // namespace concert::client

int concert_submit_collective(concert_queue* queue, const concert_collective* op,
                              const concert_submit_options* options, concert_ticket* ticket,
                              concert_error* error) {
  return concert::client::Submit(queue, op, "concert_collective", concert::client::Encode, options,
                                 ticket, error);
}
