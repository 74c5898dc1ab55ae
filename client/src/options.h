// The struct_size rule of concert.h, in one place.
#ifndef CONCERT_CLIENT_SRC_OPTIONS_H_
#define CONCERT_CLIENT_SRC_OPTIONS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "client/src/failure.h"

namespace concert::client {

// Copies what the caller knows of `T`; the rest becomes zero, which is every field's default. A
// caller from the future may pass a longer struct as long as what this library does not know is
// zero.
template <typename T>
int CopyOptions(const T* from, const char* name, T* to, concert_error* error) {
  *to = {};
  if (from == nullptr) return Fail(error, CONCERT_INVALID_ARGUMENT, "%s is NULL", name);
  const size_t size = from->struct_size;
  if (size < sizeof(uint32_t)) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "%s.struct_size is %zu; set it to sizeof(%s), which CONCERT_INIT does", name, size,
                name);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  if (size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char byte) { return byte != 0; })) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "%s.struct_size is %zu and a field past byte %zu is set, which libconcert %s does "
                "not know; "
                "update the library or leave the field 0",
                name, size, sizeof(T), concert_version());
  }
  std::memcpy(to, from, std::min(size, sizeof(T)));
  return CONCERT_OK;
}

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_OPTIONS_H_
