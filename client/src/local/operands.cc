#include "client/src/local/operands.h"

#include <algorithm>
#include <cstdint>

#include "client/src/failure.h"
#include "client/src/local/gemm_checks.h"
#include "client/src/local/refusal.h"

namespace concert::client {
namespace {

using Wide = unsigned __int128;

constexpr uint64_t kCopyBytesMax = uint64_t{1} << 40;

struct Range {
  uint64_t begin = 0, end = 0;  // both 0: the operand is absent

  bool Overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Range&) const = default;
};

uint32_t ElementBytes(uint8_t dtype) {
  if (dtype == CONCERT_ABI_FP8_E4M3) return 1;
  return dtype == CONCERT_ABI_FP32 ? 4 : 2;
}

// Elements of `batch` matrices from the first to the last. Each product is below 2^96.
Wide Span(uint64_t rows, uint64_t columns, uint64_t ld, uint64_t batch, uint64_t stride) {
  return Wide{batch - 1} * stride + Wide{rows - 1} * ld + columns;
}

// Finds operands one after the other, until one is not as it should be.
class Locator {
 public:
  Locator(const BufferTable& buffers, uint32_t gpu, concert_error* error)
      : buffers_(buffers), gpu_(gpu), error_(error) {}

  int code() const { return code_; }

  // Where `elements` of `element_bytes` lie from the operand's offset on.
  Range Find(concert_field field, const concert_operand& operand, Wide elements,
             uint32_t element_bytes) {
    const LocalMemory memory = buffers_.Find(operand.buffer);
    const Wide bytes = elements * element_bytes;
    const Wide end = bytes + operand.offset;
    if (operand.buffer == 0) {
      Refuse({CONCERT_MESSAGE_BUFFER_MISSING, {field}});
    } else if (memory.bytes == 0) {
      Refuse({CONCERT_MESSAGE_NO_BUFFER, {field, operand.buffer}}, CONCERT_NOT_FOUND);
    } else if (memory.gpu != gpu_) {
      RefuseGpu(field, memory.gpu);
    } else if (end > UINT64_MAX) {
      Refuse({CONCERT_MESSAGE_OVERFLOW, {field}});
    } else if ((memory.address + operand.offset) % element_bytes != 0) {
      Refuse({CONCERT_MESSAGE_MISALIGNED, {field, operand.offset, element_bytes}});
    } else if (end > memory.bytes) {
      Refuse({CONCERT_MESSAGE_OUT_OF_BOUNDS,
              {field, static_cast<uint64_t>(bytes), operand.offset, operand.buffer, memory.bytes}});
    }
    if (code_ != CONCERT_OK) return {};
    const uint64_t begin = memory.address + operand.offset;
    return {begin, begin + static_cast<uint64_t>(bytes)};
  }

  // `output` may share no memory with `input`.
  void CheckApart(concert_field output, const Range& written, concert_field input,
                  const Range& read) {
    if (written.Overlaps(read)) Refuse({CONCERT_MESSAGE_OVERLAP, {output, input}});
  }

  // The first reason counts.
  void Refuse(const Refusal& why, int code = CONCERT_INVALID_ARGUMENT) {
    if (code_ == CONCERT_OK && why.refused()) code_ = why.Report(error_, code);
  }

 private:
  void RefuseGpu(concert_field field, uint32_t lies_on) {
    if (code_ != CONCERT_OK) return;
    code_ = Fail(error_, CONCERT_UNIMPLEMENTED,
                 "%s lies on GPU %u, but the queue is on GPU %u; CONCERT_FALLBACK=cublas computes "
                 "with memory of the queue's GPU only; allocate it there or start concertd",
                 concert_field_name(field), lies_on, gpu_);
  }

  const BufferTable& buffers_;
  const uint32_t gpu_;
  concert_error* const error_;
  int code_ = CONCERT_OK;
};

struct GemmRanges {
  Range a, w, c, d, bias, a_scales, w_scales;
};

// In the daemon's order. Those of absent operands stay empty.
GemmRanges FindGemm(const concert_gemm_body& op, Locator& locator) {
  const uint32_t element = ElementBytes(op.dtype), d_element = ElementBytes(DtypeOfD(op));
  const auto scales = [&](concert_field field, uint32_t buffer, uint64_t offset, uint16_t per_row,
                          uint32_t rows) {
    if (buffer == 0) return Range();
    return locator.Find(field, {buffer, 0, offset}, (op.flags & per_row) != 0 ? rows : 1,
                        sizeof(float));
  };
  GemmRanges found;
  found.a =
      locator.Find(CONCERT_FIELD_A, op.a, Span(op.m, op.k, op.lda, op.batch, op.stride_a), element);
  found.w =
      locator.Find(CONCERT_FIELD_W, op.w, Span(op.n, op.k, op.ldw, op.batch, op.stride_w), element);
  found.d = locator.Find(CONCERT_FIELD_D, op.d,
                         Span(op.m, ColumnsOfD(op), op.ldd, op.batch, op.stride_d), d_element);
  if (op.beta != 0) {
    found.c = locator.Find(CONCERT_FIELD_C, op.c, Span(op.m, op.n, op.ldc, op.batch, op.stride_c),
                           d_element);
  }
  if (op.bias.buffer != 0) found.bias = locator.Find(CONCERT_FIELD_BIAS, op.bias, op.n, d_element);
  found.a_scales = scales(CONCERT_FIELD_A_SCALES, op.a.scales, op.a_scales_offset,
                          CONCERT_GEMM_A_SCALES_PER_ROW, op.m);
  found.w_scales = scales(CONCERT_FIELD_W_SCALES, op.w.scales, op.w_scales_offset,
                          CONCERT_GEMM_W_SCALES_PER_ROW, op.n);
  return found;
}

void CheckGemmApart(const concert_gemm_body& op, const GemmRanges& found, Locator& locator) {
  const auto apart = [&](concert_field input, const Range& read) {
    locator.CheckApart(CONCERT_FIELD_D, found.d, input, read);
  };
  apart(CONCERT_FIELD_A, found.a);
  apart(CONCERT_FIELD_W, found.w);
  apart(CONCERT_FIELD_BIAS, found.bias);
  apart(CONCERT_FIELD_A_SCALES, found.a_scales);
  apart(CONCERT_FIELD_W_SCALES, found.w_scales);
  const bool in_place =
      found.d == found.c && op.ldd == op.ldc && (op.batch == 1 || op.stride_d == op.stride_c);
  if (!in_place) apart(CONCERT_FIELD_C, found.c);
}

}  // namespace

uint32_t BufferTable::Add(const LocalMemory& memory) {
  const MutexLock lock(mutex_);
  const auto free = std::find_if(buffers_.begin(), buffers_.end(),
                                 [](const auto& buffer) { return !buffer.has_value(); });
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

int LocateGemm(concert_descriptor& descriptor, const BufferTable& buffers, uint32_t gpu,
               concert_error* error) {
  concert_gemm_body& op = descriptor.body.gemm;
  if (const Refusal why = CheckGemm(op); why.refused()) return why.Report(error);
  Locator locator(buffers, gpu, error);
  const GemmRanges found = FindGemm(op, locator);
  CheckGemmApart(op, found, locator);
  op.a.offset = found.a.begin;
  op.w.offset = found.w.begin;
  op.c.offset = found.c.begin;
  op.d.offset = found.d.begin;
  op.bias.offset = found.bias.begin;
  op.a_scales_offset = found.a_scales.begin;
  op.w_scales_offset = found.w_scales.begin;
  return locator.code();
}

int LocateCopy(concert_descriptor& descriptor, const BufferTable& buffers, uint32_t gpu,
               concert_error* error) {
  concert_copy_body& op = descriptor.body.copy;
  Locator locator(buffers, gpu, error);
  if (op.bytes == 0 || op.bytes > kCopyBytesMax) {
    locator.Refuse(
        {CONCERT_MESSAGE_FIELD_RANGE, {CONCERT_FIELD_BYTES, op.bytes, 1, kCopyBytesMax}});
  }
  const Range src = locator.Find(CONCERT_FIELD_SRC, op.src, op.bytes, 1);
  const Range dst = locator.Find(CONCERT_FIELD_DST, op.dst, op.bytes, 1);
  locator.CheckApart(CONCERT_FIELD_DST, dst, CONCERT_FIELD_SRC, src);
  op.src.offset = src.begin;
  op.dst.offset = dst.begin;
  return locator.code();
}

}  // namespace concert::client
