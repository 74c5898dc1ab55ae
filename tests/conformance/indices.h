// Indices as they lie in a client's memory, and such that are far out of range.
#ifndef CONCERT_TESTS_CONFORMANCE_INDICES_H_
#define CONCERT_TESTS_CONFORMANCE_INDICES_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/conformance/numbers.h"

namespace concert::daemon::conformance {

using Indices = std::vector<int64_t>;

inline constexpr std::array<uint8_t, 2> kIndexDtypes = {CONCERT_ABI_INT32, CONCERT_ABI_INT64};
inline constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

inline uint64_t IndexBytes(uint8_t dtype) { return dtype == CONCERT_ABI_INT32 ? 4 : 8; }

// int32 gets the nearest that it can hold.
inline Bytes EncodeIndices(uint8_t dtype, const Indices& indices) {
  const uint64_t size = IndexBytes(dtype);
  Bytes bytes(indices.size() * size);
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t index = size == 8
                              ? indices[i]
                              : std::clamp<int64_t>(indices[i], std::numeric_limits<int32_t>::min(),
                                                    std::numeric_limits<int32_t>::max());
    std::memcpy(bytes.data() + i * size, &index, size);  // little-endian
  }
  return bytes;
}

inline Indices DecodeIndices(uint8_t dtype, const Bytes& bytes) {
  const uint64_t size = IndexBytes(dtype);
  Indices indices(bytes.size() / size);
  for (size_t i = 0; i < indices.size(); ++i) {
    std::memcpy(&indices[i], bytes.data() + i * size, size);
    if (size == 4) indices[i] = static_cast<int32_t>(indices[i]);
  }
  return indices;
}

}  // namespace concert::daemon::conformance

#endif  // CONCERT_TESTS_CONFORMANCE_INDICES_H_
