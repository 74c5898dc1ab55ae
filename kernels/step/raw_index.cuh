// Elements of tables, asked for ahead.
#ifndef CONCERT_KERNELS_STEP_RAW_INDEX_CUH_
#define CONCERT_KERNELS_STEP_RAW_INDEX_CUH_

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"

namespace concert::kernels::cuda {

// An element of a table that is on its way: which of both types it has is asked when it is there.
struct RawIndex {
  uint2 words;

  __device__ void Load(Address table, uint64_t i, IndexType type) {
    const auto* const at = reinterpret_cast<const volatile uint32_t*>(table);
    if (type == IndexType::kInt32) {
      words.x = at[i];
    } else {
      asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
                   : "=r"(words.x), "=r"(words.y)
                   : "l"(at + 2 * i));
    }
  }
  __device__ int64_t Get(IndexType type) const {
    if (type == IndexType::kInt32) return static_cast<int32_t>(words.x);
    return static_cast<int64_t>(uint64_t{words.y} << 32 | words.x);
  }
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_RAW_INDEX_CUH_
