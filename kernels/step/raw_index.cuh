// Elements of tables, asked for ahead.
#ifndef CONCERT_KERNELS_STEP_RAW_INDEX_CUH_
#define CONCERT_KERNELS_STEP_RAW_INDEX_CUH_

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"

namespace concert::kernels::cuda {

// An element of a table that is on its way: which of both types it has is asked when it is there.
struct RawIndex {
  int32_t narrow;
  int64_t wide;

  __device__ void Load(Address table, uint64_t i, IndexType type) {
    if (type == IndexType::kInt32) {
      narrow = reinterpret_cast<const volatile int32_t*>(table)[i];
    } else {
      wide = reinterpret_cast<const volatile int64_t*>(table)[i];
    }
  }
  __device__ int64_t Get(IndexType type) const { return type == IndexType::kInt32 ? narrow : wide; }
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_RAW_INDEX_CUH_
