#include "client/src/encode/submit.h"

namespace concert::client {

int CopySubmitOptions(const concert_submit_options* from, concert_submit_options* to,
                      concert_error* error) {
  *to = {};
  if (from == nullptr) return CONCERT_OK;
  if (int code = CopyOptions(from, "concert_submit_options", to, error)) return code;
  if (to->wait_count > CONCERT_WAITS_MAX) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "wait_count is %u; an op waits for at most %d tickets", to->wait_count,
                CONCERT_WAITS_MAX);
  }
  if (to->wait_count > 0 && to->waits == nullptr) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "waits is NULL but wait_count is %u",
                to->wait_count);
  }
  return CONCERT_OK;
}

}  // namespace concert::client
