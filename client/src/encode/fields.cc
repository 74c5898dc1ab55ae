#include "client/src/encode/fields.h"

#include "client/src/failure.h"

namespace concert::client {

void CheckOther(const char* name, const concert_buffer& buffer, EncodedOp* op) {
  if (op->refused != CONCERT_OK) return;
  if (buffer.recording != nullptr && buffer.recording == op->queue.recording) return;
  if (buffer.origin.forked()) {
    op->refused = FailForked("buffer", op->error);
  } else if (buffer.recording != nullptr) {
    op->refused = Fail(op->error, CONCERT_INVALID_ARGUMENT,
                       "%s is a slot of a program, which only ops on that program's queue may "
                       "name; use a buffer of the session",
                       name);
  } else {
    op->refused = Fail(op->error, CONCERT_INVALID_ARGUMENT,
                       "%s is a buffer of session %u, but the queue is of session %u; use a buffer "
                       "of the queue's session",
                       name, buffer.session->id(), op->queue.session->id());
  }
}

}  // namespace concert::client
