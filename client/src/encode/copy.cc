#include "client/src/encode/encode.h"
#include "client/src/encode/fields.h"

namespace concert::client {

int Encode(const concert_copy& op, EncodedOp* to, concert_error* error) {
  if (int code = CheckOrigins({&op.src, &op.dst}, error)) return code;
  to->descriptor.kind = CONCERT_OP_COPY;
  concert_copy_body& body = to->descriptor.body.copy;
  body.src = Operand(op.src);
  body.dst = Operand(op.dst);
  body.bytes = op.bytes;
  return CONCERT_OK;
}

}  // namespace concert::client
