// An embedding with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_EMBEDDING_EMBEDDING_ARGS_H_
#define CONCERT_KERNELS_EMBEDDING_EMBEDDING_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"

namespace concert::kernels {

// As concert_embedding_body.
struct EmbeddingArgs {
  uint32_t rows, columns, vocabulary;
  Address ids, table, out;
  uint64_t table_stride, out_stride;  // elements
  Dtype dtype;
  IndexType index_type;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_EMBEDDING_EMBEDDING_ARGS_H_
