// What a daemon refuses a GEMM for, whatever its buffers are.
#ifndef CONCERT_CLIENT_SRC_LOCAL_GEMM_CHECKS_H_
#define CONCERT_CLIENT_SRC_LOCAL_GEMM_CHECKS_H_

#include <cstdint>

#include "client/src/local/refusal.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

// As the checks of AdmitGemm (kernels/gemm/gemm_op.cc) up to its operands, which client/ may not
// include; local_admission_test.cc compares what they say.
Refusal CheckGemm(const concert_gemm_body& op);

// What a checked GEMM is made of.
inline bool IsGated(const concert_gemm_body& op) { return (op.flags & CONCERT_GEMM_GATED) != 0; }
inline uint32_t ColumnsOfD(const concert_gemm_body& op) { return IsGated(op) ? op.n / 2 : op.n; }
inline uint8_t DtypeOfD(const concert_gemm_body& op) {
  return op.d_dtype != 0 ? op.d_dtype : op.dtype;
}

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_GEMM_CHECKS_H_
