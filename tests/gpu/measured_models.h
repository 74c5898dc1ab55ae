// Models that measures of a layer have in common: those of suite `steps`.
#ifndef CONCERT_TESTS_GPU_MEASURED_MODELS_H_
#define CONCERT_TESTS_GPU_MEASURED_MODELS_H_

#include "tests/gpu/model_step.h"

namespace concert::test {

// With so many layers: as many as it takes for their weights to come from memory each time, an
// H200's L2 cache having 50 MB.
inline ModelShape Dense(uint32_t hidden, uint32_t layers) {
  return {.hidden = hidden,
          .q_heads = hidden / 64,
          .kv_heads = hidden / 64,
          .ffn = hidden / 4 * 11,
          .layers = layers,
          .contexts = std::vector<int32_t>(8, 512)};
}
inline ModelShape Gqa1536(uint32_t layers) {
  return {.hidden = 1536,
          .q_heads = 12,
          .kv_heads = 2,
          .head_dim = 128,
          .ffn = 8960,
          .layers = layers,
          .contexts = std::vector<int32_t>(16, 1024)};
}

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_MEASURED_MODELS_H_
