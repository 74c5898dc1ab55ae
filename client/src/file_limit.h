// A process that has no file descriptor free.
#ifndef CONCERT_CLIENT_SRC_FILE_LIMIT_H_
#define CONCERT_CLIENT_SRC_FILE_LIMIT_H_

#include <cerrno>

#include "concert/concert.h"

namespace concert::client {

inline bool IsNoFdFree(int error_number) {
  return error_number == EMFILE || error_number == ENFILE;
}

// RESOURCE_EXHAUSTED: there is none for `what`. Names the limit.
int FailNoFdFree(const char* what, concert_error* error);

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_FILE_LIMIT_H_
