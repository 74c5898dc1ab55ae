// What every entry point of the C ABI does: checks its handles, lets no exception out.
#ifndef CONCERT_CLIENT_SRC_ENTRY_H_
#define CONCERT_CLIENT_SRC_ENTRY_H_

#include <new>

#include "client/src/failure.h"
#include "client/src/fork.h"

namespace concert::client {

// Only the standard library throws here, and only for want of memory.
template <typename Body>
int Guard(concert_error* error, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "out of host memory");
  } catch (...) {
    return Fail(error, CONCERT_INTERNAL, "an unexpected exception in libconcert");
  }
}

#define CONCERT_REQUIRE(pointer)                                                            \
  do {                                                                                      \
    if ((pointer) == nullptr) {                                                             \
      return ::concert::client::Fail(error, CONCERT_INVALID_ARGUMENT, #pointer " is NULL"); \
    }                                                                                       \
  } while (false)

// Handles of a parent process, in a child: the calls that follow would write into its rings.
template <typename Handle>
bool IsForked(const Handle* handle) {
  return handle->origin.forked();
}

#define CONCERT_REQUIRE_HANDLE(handle)                      \
  do {                                                      \
    CONCERT_REQUIRE(handle);                                \
    if (::concert::client::IsForked(handle)) [[unlikely]] { \
      return ::concert::client::FailForked(#handle, error); \
    }                                                       \
  } while (false)

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENTRY_H_
