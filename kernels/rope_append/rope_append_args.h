// Rotary embedding and append with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_ARGS_H_
#define CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"
#include "kernels/kv_cache.h"

namespace concert::kernels {

// As concert_rope_append_body.
struct RopeAppendArgs {
  uint32_t rows, positions_max;
  uint16_t q_heads, kv_heads, head_dim, rotary_dim;
  Address q, k, v, positions, slots, cos_sin;
  KvCacheArgs cache;
  uint32_t q_stride, k_stride, v_stride;  // elements
  Dtype dtype;
  IndexType position_type, slot_type;
  bool interleaved;

  bool operator==(const RopeAppendArgs&) const = default;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_ARGS_H_
