// Embedding in the row kernel.
#ifndef CONCERT_KERNELS_EMBEDDING_EMBEDDING_CUH_
#define CONCERT_KERNELS_EMBEDDING_EMBEDDING_CUH_

#include "kernels/cuda_api/element.cuh"
#include "kernels/embedding/embedding_args.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// What falls to block `block` of `blocks`. REQUIRES: kWidth divides columns and strides, and table
// and out are aligned to a pack.
template <typename T, int kWidth>
__device__ void Embedding(const EmbeddingArgs& args, uint32_t block, uint32_t blocks) {
  ForEachPack<kWidth>(args.rows, args.columns, block, blocks, [&](uint64_t row, uint64_t column) {
    const int64_t id = LoadIndex(args.ids, row, args.index_type);
    Pack<T, kWidth> values;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values.values[i] = FromFloat<T>(0);
    if (id >= 0) {
      const uint64_t table_row = Clamped(id, args.vocabulary) * args.table_stride;
      values = *PackAt<T, kWidth>(args.table, table_row + column);
    }
    *PackAt<T, kWidth>(args.out, row * args.out_stride + column) = values;
  });
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_EMBEDDING_EMBEDDING_CUH_
