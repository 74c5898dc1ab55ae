// How a call fails: one line that fills in the caller's concert_error and yields the code.
#ifndef CONCERT_CLIENT_SRC_FAILURE_H_
#define CONCERT_CLIENT_SRC_FAILURE_H_

#include "concert/concert.h"

namespace concert::client {

// Writes `code` and the sentence to `error` unless that is null. Returns `code`.
[[gnu::format(printf, 3, 4)]] int Fail(concert_error* error, int code, const char* format, ...);

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_FAILURE_H_
