// How ops are submitted: each kind has one file here, with its entry point in the C ABI and the
// encoder that fills in its descriptor. Remote and local sessions take the same descriptors.
#ifndef CONCERT_CLIENT_SRC_ENCODE_SUBMIT_H_
#define CONCERT_CLIENT_SRC_ENCODE_SUBMIT_H_

#include "client/src/encode/encoded_op.h"
#include "client/src/entry.h"
#include "client/src/handles.h"
#include "client/src/options.h"

namespace concert::client {

// A copy of `from`, which may be null, with `waits` checked: they are the one pointer that the
// library itself follows.
int CopySubmitOptions(const concert_submit_options* from, concert_submit_options* to,
                      concert_error* error);

// What concert_submit_KIND does. `name` is that of the op's struct. `encode` sets strides that were
// left 0, as concert.h says, and refuses what only the library can, as handles of another session
// or from before fork(); all else is the business of whoever takes the descriptor.
template <typename Op>
int Submit(concert_queue* queue, const Op* op, const char* name,
           void (*encode)(const Op& op, EncodedOp* to), const concert_submit_options* options,
           concert_ticket* ticket, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(queue);
  Op known_op;
  concert_submit_options known_options;
  if (int code = CopyOptions(op, name, &known_op, error)) return code;
  if (int code = CopySubmitOptions(options, &known_options, error)) return code;
  EncodedOp encoded(*queue, error);
  encode(known_op, &encoded);
  if (encoded.refused != CONCERT_OK) return encoded.refused;
  concert_ticket made{};
  const int code =
      Guard(error, [&] { return queue->Submit(encoded, known_options, &made, error); });
  if (code == CONCERT_OK && ticket != nullptr) *ticket = made;
  return code;
}

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENCODE_SUBMIT_H_
