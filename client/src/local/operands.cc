#include "client/src/local/operands.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>

#include "client/src/failure.h"

namespace concert::client {
namespace {

// `batch` matrices of rows x cols elements.
struct Extent {
  uint64_t rows = 1, cols = 1, ld = 1, batch = 1, stride = 0, element_bytes = 1;

  static Extent Bytes(uint64_t bytes) { return {.cols = bytes, .ld = bytes}; }
};

// Finds operands one after the other, until one is not as it should be.
class Locator {
 public:
  Locator(const BufferTable& buffers, concert_error* error) : buffers_(buffers), error_(error) {}

  int code() const { return code_; }

  // Checks, without overflow, that the operand lies within its buffer.
  void Find(const char* name, concert_operand& operand, const Extent& extent) {
    if (code_ == CONCERT_OK) code_ = Locate(name, operand, extent);
  }

  void FindScales(const char* name, uint32_t buffer, bool per_row, uint32_t rows,
                  uint64_t& offset) {
    if (code_ != CONCERT_OK) return;
    concert_operand operand = {buffer, 0, offset};
    if (buffer == 0 && !per_row) {
      offset = 0;
    } else if (offset % sizeof(float) != 0) {
      code_ = Fail(error_, CONCERT_INVALID_ARGUMENT, "%s.offset %" PRIu64 " is not a multiple of 4",
                   name, offset);
    } else {
      Find(name, operand, Extent::Bytes((per_row ? rows : 1) * sizeof(float)));
      offset = operand.offset;
    }
  }

 private:
  int Locate(const char* name, concert_operand& operand, const Extent& extent) {
    if (operand.buffer == 0) {
      return Fail(error_, CONCERT_INVALID_ARGUMENT,
                  "%s is required for this op but its buffer is NULL", name);
    }
    if (extent.ld < extent.cols) {
      return Fail(error_, CONCERT_INVALID_ARGUMENT,
                  "ld%s is %" PRIu64 "; a row holds %" PRIu64
                  " elements, so it must be at least that",
                  name, extent.ld, extent.cols);
    }
    const LocalMemory memory = buffers_.Find(operand.buffer);
    // Each product is below 2^96 and there are three terms.
    const __uint128_t elements = static_cast<__uint128_t>(extent.batch - 1) * extent.stride +
                                 static_cast<__uint128_t>(extent.rows - 1) * extent.ld +
                                 extent.cols;
    if (operand.offset + elements * extent.element_bytes > memory.bytes) {
      return Fail(error_, CONCERT_INVALID_ARGUMENT,
                  "%s at offset %" PRIu64 " does not fit in its buffer of %" PRIu64 " bytes", name,
                  operand.offset, memory.bytes);
    }
    operand.offset += memory.address;
    return CONCERT_OK;
  }

  const BufferTable& buffers_;
  concert_error* const error_;
  int code_ = CONCERT_OK;
};

uint64_t ElementBytes(uint32_t dtype) {
  if (dtype == CONCERT_FP8_E4M3) return 1;
  return dtype == CONCERT_FP32 ? 4 : 2;
}

}  // namespace

uint32_t BufferTable::Add(const LocalMemory& memory) {
  const MutexLock lock(mutex_);
  const auto free = std::find(buffers_.begin(), buffers_.end(), std::nullopt);
  const auto index = static_cast<uint32_t>(free - buffers_.begin());
  if (free == buffers_.end()) buffers_.emplace_back();
  buffers_[index] = memory;
  return index + 1;
}

void BufferTable::Remove(uint32_t id) {
  const MutexLock lock(mutex_);
  buffers_[id - 1].reset();
}

LocalMemory BufferTable::Find(uint32_t id) const {
  const MutexLock lock(mutex_);
  return id - 1 < buffers_.size() ? buffers_[id - 1].value_or(LocalMemory{}) : LocalMemory{};
}

int LocateGemm(concert_descriptor& descriptor, const BufferTable& buffers, concert_error* error) {
  concert_gemm_body& op = descriptor.body.gemm;
  if (op.m == 0 || op.n == 0 || op.k == 0) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "m, n and k are %u, %u and %u; none may be 0",
                op.m, op.n, op.k);
  }
  Locator locator(buffers, error);
  const auto matrix = [&](const char* name, concert_operand& operand, uint32_t rows, uint32_t cols,
                          uint64_t ld, uint64_t stride, uint32_t dtype) {
    locator.Find(name, operand, {rows, cols, ld, op.batch, stride, ElementBytes(dtype)});
  };
  const uint32_t d_dtype = op.d_dtype != 0 ? op.d_dtype : op.dtype;
  if (op.beta == 0) op.c = {};
  matrix("a", op.a, op.m, op.k, op.lda, op.stride_a, op.dtype);
  matrix("w", op.w, op.n, op.k, op.ldw, op.stride_w, op.dtype);
  const uint32_t d_columns = (op.flags & CONCERT_GEMM_GATED) != 0 ? op.n / 2 : op.n;
  matrix("d", op.d, op.m, d_columns, op.ldd, op.stride_d, d_dtype);
  if (op.beta != 0) matrix("c", op.c, op.m, op.n, op.ldc, op.stride_c, d_dtype);
  if (op.bias.buffer == 0) op.bias = {};
  if (op.bias.buffer != 0) matrix("bias", op.bias, 1, op.n, op.n, 0, d_dtype);
  if (op.dtype != CONCERT_FP8_E4M3) return locator.code();  // what has scales is refused
  locator.FindScales("a_scales", op.a.scales, (op.flags & CONCERT_GEMM_A_SCALES_PER_ROW) != 0, op.m,
                     op.a_scales_offset);
  locator.FindScales("w_scales", op.w.scales, (op.flags & CONCERT_GEMM_W_SCALES_PER_ROW) != 0, op.n,
                     op.w_scales_offset);
  return locator.code();
}

int LocateCopy(concert_descriptor& descriptor, const BufferTable& buffers, concert_error* error) {
  concert_copy_body& op = descriptor.body.copy;
  if (op.bytes == 0) return Fail(error, CONCERT_INVALID_ARGUMENT, "bytes is 0");
  Locator locator(buffers, error);
  locator.Find("src", op.src, Extent::Bytes(op.bytes));
  locator.Find("dst", op.dst, Extent::Bytes(op.bytes));
  return locator.code();
}

}  // namespace concert::client
