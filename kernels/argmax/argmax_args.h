// An argmax with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_ARGMAX_ARGMAX_ARGS_H_
#define CONCERT_KERNELS_ARGMAX_ARGMAX_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"

namespace concert::kernels {

// As concert_argmax_body.
struct ArgmaxArgs {
  uint32_t rows, columns;
  Address x, indices;
  uint64_t x_stride;  // elements
  Dtype dtype;
  IndexType index_type;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ARGMAX_ARGMAX_ARGS_H_
