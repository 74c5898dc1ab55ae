// What the bodies of several kinds of op consist of. C11 and C++20.
#ifndef CONCERT_PROTO_RING_OPS_OPERAND_H_
#define CONCERT_PROTO_RING_OPS_OPERAND_H_

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum concert_dtype_abi {
  CONCERT_ABI_BF16 = 1,
  CONCERT_ABI_FP16 = 2,
  CONCERT_ABI_FP32 = 3,
  CONCERT_ABI_FP8_E4M3 = 4, /* OCP E4M3: no infinities, 0x7f and 0xff are NaN. A and W of a GEMM, and caches */
  CONCERT_ABI_INT32 = 5,    /* indices only: token ids, positions, slots */
  CONCERT_ABI_INT64 = 6,
};

enum concert_activation_abi {
  CONCERT_ABI_ACT_NONE = 0,
  CONCERT_ABI_ACT_RELU = 1,
  CONCERT_ABI_ACT_GELU = 2, /* tanh approximation, as cuBLASLt's epilogue */
  CONCERT_ABI_ACT_SILU = 3,
};

/* `bytes` from `offset` of a registered buffer; buffer 0 means "none". */
struct concert_operand {
  uint32_t buffer;
  /* Of a GEMM's a and w: the buffer that holds its scales, 0: none. Of a cache's k and v: see concert_kv_cache_abi.
   * Else reserved. */
  uint32_t scales;
  uint64_t offset;
};

/* Of every body. */
#define CONCERT_BODY_BYTES 192

#define CONCERT_ABI_ASSERT(type, field, offset) \
  static_assert(offsetof(struct type, field) == (offset), #type "." #field " moved")

static_assert(sizeof(struct concert_operand) == 16, "ABI");
CONCERT_ABI_ASSERT(concert_operand, scales, 4);
CONCERT_ABI_ASSERT(concert_operand, offset, 8);

#endif  // CONCERT_PROTO_RING_OPS_OPERAND_H_
