#include "client/src/failure.h"

#include <cstdarg>
#include <cstdio>

namespace concert::client {

int Fail(concert_error* error, int code, const char* format, ...) {
  if (error == nullptr) return code;
  error->code = code;
  va_list args;
  va_start(args, format);
  std::vsnprintf(error->message, sizeof(error->message), format, args);
  va_end(args);
  return code;
}

}  // namespace concert::client
