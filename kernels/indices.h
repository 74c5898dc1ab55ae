// Numbers in a client's memory that say where something lies: token ids, positions, slots, pages,
// lengths. The client may change them at any time, also while an op reads them, so they are read
// once and then kept within what admission has checked: wrong ones spoil the client's own results
// and reach nothing else. For host and device code.
#ifndef CONCERT_KERNELS_INDICES_H_
#define CONCERT_KERNELS_INDICES_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"

#ifdef __CUDACC__
#define CONCERT_ON_BOTH_SIDES __host__ __device__
#else
#define CONCERT_ON_BOTH_SIDES
#endif

namespace concert::kernels {

enum class IndexType : uint8_t { kInt32 = 5, kInt64 = 6 };  // as concert_dtype_abi

CONCERT_ON_BOTH_SIDES constexpr uint32_t IndexBytes(IndexType type) {
  return type == IndexType::kInt32 ? 4 : 8;
}

// Element i of `indices`. Volatile: what is checked is what is used.
CONCERT_ON_BOTH_SIDES inline int64_t LoadIndex(Address indices, uint64_t i, IndexType type) {
  return type == IndexType::kInt32 ? reinterpret_cast<const volatile int32_t*>(indices)[i]
                                   : reinterpret_cast<const volatile int64_t*>(indices)[i];
}

CONCERT_ON_BOTH_SIDES inline void StoreIndex(Address indices, uint64_t i, IndexType type,
                                             int64_t index) {
  if (type == IndexType::kInt32) {
    reinterpret_cast<int32_t*>(indices)[i] = static_cast<int32_t>(index);
  } else {
    reinterpret_cast<int64_t*>(indices)[i] = index;
  }
}

// The nearest of 0 to `count` - 1. REQUIRES: count >= 1.
CONCERT_ON_BOTH_SIDES inline uint64_t Clamped(int64_t index, uint64_t count) {
  if (index < 0) return 0;
  const auto unsigned_index = static_cast<uint64_t>(index);
  return unsigned_index < count ? unsigned_index : count - 1;
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_INDICES_H_
