// Where the operands of an op lie, and the checks that a daemon would make: a kernel past the end
// of a buffer would take the process's CUDA context down.
#ifndef CONCERT_CLIENT_SRC_LOCAL_OPERANDS_H_
#define CONCERT_CLIENT_SRC_LOCAL_OPERANDS_H_

#include <cuda.h>

#include <cstdint>

#include "client/src/local/cublas_lt.h"
#include "concert/concert.h"

namespace concert::client {

// Fills in the strides that were left 0, as concert.h says; CONCERT_STRIDE_SHARED becomes 0.
concert_gemm WithStrides(concert_gemm op);

// The addresses of the operands of `op`, whose strides are all set. INVALID_ARGUMENT, naming the
// field, where one is missing or does not fit in its buffer.
int LocateGemm(const concert_gemm& op, GemmAddresses* to, concert_error* error);

// The same for `bytes` at the slice.
int LocateBytes(const char* name, const concert_slice& slice, uint64_t bytes, CUdeviceptr* address,
                concert_error* error);

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_OPERANDS_H_
