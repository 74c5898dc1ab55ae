// Why an op is refused, in a daemon's words.
#ifndef CONCERT_CLIENT_SRC_LOCAL_REFUSAL_H_
#define CONCERT_CLIENT_SRC_LOCAL_REFUSAL_H_

#include <array>
#include <cstdint>

#include "client/src/failure.h"
#include "concert/concert.h"
#include "proto/ring/messages.h"

namespace concert::client {

struct Refusal {
  concert_message message = CONCERT_MESSAGE_NONE;  // NONE: it is not refused
  std::array<uint64_t, 5> args{};

  bool refused() const { return message != CONCERT_MESSAGE_NONE; }

  int Report(concert_error* error, int code = CONCERT_INVALID_ARGUMENT) const {
    char sentence[sizeof(concert_error::message)];
    concert_render_message(message, args.data(), sentence, sizeof(sentence));
    return Fail(error, code, "%s", sentence);
  }
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_REFUSAL_H_
