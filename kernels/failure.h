// Why one op failed, as numbers: what a completion entry carries. Making one formats and allocates
// nothing.
#ifndef CONCERT_KERNELS_FAILURE_H_
#define CONCERT_KERNELS_FAILURE_H_

#include <array>
#include <cstdint>
#include <string>

#include "proto/ring/messages.h"
#include "proto/ring/ring_abi.h"

namespace concert::kernels {

struct Failure {
  concert_status_abi status = CONCERT_ABI_OK;
  concert_message message = CONCERT_MESSAGE_NONE;
  std::array<uint64_t, 5> args{};

  bool ok() const { return status == CONCERT_ABI_OK; }

  // The sentence, for logs and tests.
  std::string ToString() const {
    char text[256];
    return {text, concert_render_message(message, args.data(), text, sizeof(text))};
  }
};

inline Failure InvalidArgument(concert_message message, uint64_t a0 = 0, uint64_t a1 = 0,
                               uint64_t a2 = 0, uint64_t a3 = 0, uint64_t a4 = 0) {
  return {CONCERT_ABI_INVALID_ARGUMENT, message, {a0, a1, a2, a3, a4}};
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_FAILURE_H_
