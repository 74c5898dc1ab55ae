#include "client/src/local/operands.h"

#include <cinttypes>
#include <cstdint>

#include "client/src/failure.h"
#include "client/src/handles.h"

namespace concert::client {
namespace {

uint64_t OrTight(uint64_t stride, uint64_t tight) { return stride != 0 ? stride : tight; }

// Finds the address of `batch` matrices and checks, without overflow, that they lie within their
// buffer.
int Locate(const char* name, const concert_slice& slice, __uint128_t rows, __uint128_t cols,
           uint64_t ld, uint64_t batch, uint64_t stride, uint64_t element_bytes,
           CUdeviceptr* address, concert_error* error) {
  if (slice.buffer == nullptr) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "%s is required for this op but its buffer is NULL", name);
  }
  if (ld < cols) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "ld%s is %" PRIu64 "; a row holds %" PRIu64
                " elements, so it must be at least that",
                name, ld, static_cast<uint64_t>(cols));
  }
  // Each product is below 2^96 and there are three terms.
  const __uint128_t elements =
      (static_cast<__uint128_t>(batch) - 1) * stride + (rows - 1) * ld + cols;
  const __uint128_t end = slice.offset + elements * element_bytes;
  if (end > slice.buffer->bytes) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "%s at offset %" PRIu64 " does not fit in its buffer of %" PRIu64 " bytes", name,
                slice.offset, slice.buffer->bytes);
  }
  void* begin = nullptr;
  if (int code = slice.buffer->Address(&begin, error)) return code;
  *address = reinterpret_cast<CUdeviceptr>(begin) + slice.offset;
  return CONCERT_OK;
}

uint64_t ElementBytes(uint32_t dtype) {
  if (dtype == CONCERT_FP8_E4M3) return 1;
  return dtype == CONCERT_FP32 ? 4 : 2;
}

int LocateScales(const char* name, const concert_slice& slice, bool per_row, uint32_t rows,
                 CUdeviceptr* address, concert_error* error) {
  if (slice.buffer == nullptr && !per_row) return CONCERT_OK;
  if (slice.offset % sizeof(float) != 0) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "%s.offset %" PRIu64 " is not a multiple of 4",
                name, slice.offset);
  }
  const uint32_t count = per_row ? rows : 1;
  return Locate(name, slice, 1, count, count, 1, 0, sizeof(float), address, error);
}

}  // namespace

concert_gemm WithStrides(concert_gemm op) {
  const auto batch_stride = [&](uint64_t stride, uint64_t rows, uint64_t ld) -> uint64_t {
    if (stride == CONCERT_STRIDE_SHARED || op.batch <= 1) return 0;
    return OrTight(stride, rows * ld);
  };
  if (op.batch == 0) op.batch = 1;
  op.lda = OrTight(op.lda, op.k);
  op.ldw = OrTight(op.ldw, op.k);
  op.ldc = OrTight(op.ldc, op.n);
  op.ldd = OrTight(op.ldd, op.n);
  op.stride_a = batch_stride(op.stride_a, op.m, op.lda);
  op.stride_w = batch_stride(op.stride_w, op.n, op.ldw);
  op.stride_c = batch_stride(op.stride_c, op.m, op.ldc);
  op.stride_d = batch_stride(op.stride_d, op.m, op.ldd);
  return op;
}

int LocateGemm(const concert_gemm& op, GemmAddresses* to, concert_error* error) {
  if (op.m == 0 || op.n == 0 || op.k == 0) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "m, n and k are %u, %u and %u; none may be 0",
                op.m, op.n, op.k);
  }
  int code = CONCERT_OK;
  const auto locate = [&](const char* name, const concert_slice& slice, uint32_t rows,
                          uint32_t cols, uint64_t ld, uint64_t stride, uint32_t dtype,
                          CUdeviceptr* address) {
    if (code != CONCERT_OK) return;
    code =
        Locate(name, slice, rows, cols, ld, op.batch, stride, ElementBytes(dtype), address, error);
  };
  const uint32_t d_dtype = op.d_dtype != 0 ? op.d_dtype : op.dtype;
  locate("a", op.a, op.m, op.k, op.lda, op.stride_a, op.dtype, &to->a);
  locate("w", op.w, op.n, op.k, op.ldw, op.stride_w, op.dtype, &to->w);
  locate("d", op.d, op.m, op.n, op.ldd, op.stride_d, d_dtype, &to->d);
  if (op.beta != 0) locate("c", op.c, op.m, op.n, op.ldc, op.stride_c, d_dtype, &to->c);
  if (op.bias.buffer != nullptr) locate("bias", op.bias, 1, op.n, op.n, 0, d_dtype, &to->bias);
  if (code != CONCERT_OK || op.dtype != CONCERT_FP8_E4M3) return code;
  code = LocateScales("a_scales", op.a_scales, (op.flags & CONCERT_GEMM_A_SCALES_PER_ROW) != 0,
                      op.m, &to->a_scales, error);
  if (code != CONCERT_OK) return code;
  return LocateScales("w_scales", op.w_scales, (op.flags & CONCERT_GEMM_W_SCALES_PER_ROW) != 0,
                      op.n, &to->w_scales, error);
}

int LocateBytes(const char* name, const concert_slice& slice, uint64_t bytes, CUdeviceptr* address,
                concert_error* error) {
  return Locate(name, slice, 1, bytes, bytes, 1, 0, 1, address, error);
}

}  // namespace concert::client
