// Sampling with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_SAMPLE_SAMPLE_ARGS_H_
#define CONCERT_KERNELS_SAMPLE_SAMPLE_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"

namespace concert::kernels {

// As concert_sample_body; of operands 0: none.
struct SampleArgs {
  uint32_t rows, columns;
  Address x, indices;
  Address temperatures, top_ks, top_ps, seeds, steps;
  uint64_t x_stride;  // elements
  uint64_t seed;
  float temperature, top_p;
  uint32_t top_k;
  Dtype dtype;
  IndexType index_type, step_type;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_SAMPLE_SAMPLE_ARGS_H_
