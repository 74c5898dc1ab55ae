#include "client/src/pointer_import.h"

#include <cinttypes>
#include <cstdint>

#include "client/src/failure.h"

namespace concert::client {

int FindAllocation(const concert_import& import, const cuda::Uuid& gpu, cuda::PointerInfo* found,
                   concert_error* error) {
  if (import.offset != 0 || import.allocation_bytes != 0) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "offset and allocation_bytes must be 0 for a pointer: they are found out");
  }
  if (int code = cuda::DescribePointer(gpu, import.pointer, found, error)) return code;
  const uint64_t offset = import.pointer - found->base;
  if (import.bytes != 0 && import.bytes <= found->allocation_bytes - offset) return CONCERT_OK;
  return Fail(error, CONCERT_INVALID_ARGUMENT,
              "bytes is %" PRIu64 "; from the pointer on there are 1 to %" PRIu64
              " in its allocation",
              import.bytes, found->allocation_bytes - offset);
}

}  // namespace concert::client
