// Sampling in the row kernel: a block takes one row after the other. Sums are of integers, so that
// what is drawn depends on no order.
//
// The client may change a row while it is read. So what decides about barriers is what the block
// has made of it, which all threads see alike, and every search ends whatever it finds.
#ifndef CONCERT_KERNELS_SAMPLE_SAMPLE_CUH_
#define CONCERT_KERNELS_SAMPLE_SAMPLE_CUH_

#include <type_traits>

#include "kernels/argmax/argmax.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/rows/row_threads.cuh"
#include "kernels/sample/draw.h"

namespace concert::kernels::cuda {

// What is added up of logits whose order is not below `least`: what they weigh, or 1 for each.
struct Measure {
  Weights weights;
  uint32_t least;
  bool counts;

  __device__ uint64_t operator()(float x) const {
    if (OrderOf(x) < least) return 0;
    return counts ? 1 : weights(x);
  }
};

// One row of logits. REQUIRES: kWidth divides its columns, and it is aligned to a pack.
template <typename T, int kWidth>
class SampledRow {
 public:
  __device__ SampledRow(Address x, uint64_t begin, uint32_t columns)
      : x_(x), begin_(begin), columns_(columns) {}

  // Of all elements, the sum of measure(value); for all threads.
  __device__ uint64_t Sum(const Measure& measure) const {
    uint64_t sum = 0;
    ForEach([&](float value) { sum += measure(value); });
    return SumOfIntegers(sum);
  }

  // The highest order of which it holds that measure(value) of elements that are not below it is at
  // least `target` in all, which it must be of all elements. Two bits of it at a time.
  __device__ uint32_t HighestOrderWith(uint64_t target, const Measure& measure) const {
    uint32_t order = 0;
    uint64_t beyond = 0;  // of elements above those in question
    for (int shift = 30; shift >= kLastShift; shift -= 2) {
      uint64_t sums[3] = {};  // of those in question, from the second quarter on, the third, ...
      ForEach([&](float value) {
        const uint32_t quarter = (OrderOf(value) - order) >> shift;
        if (quarter == 0 || quarter > 3) return;
        const uint64_t measured = measure(value);
#pragma unroll
        for (uint32_t i = 0; i < 3; ++i) sums[i] += quarter > i ? measured : 0;
      });
#pragma unroll
      for (int i = 0; i < 3; ++i) sums[i] = SumOfIntegers(sums[i]);
      // The highest quarter that reaches the target with all above it. By constant indices, or the
      // sums would lie in memory.
      uint32_t quarter = 0;
      uint64_t above = sums[0];
#pragma unroll
      for (uint32_t i = 0; i < 3; ++i) {
        if (beyond + sums[i] < target) continue;
        quarter = i + 1;
        above = i < 2 ? sums[i + 1] : 0;
      }
      order += quarter << shift;
      beyond += above;
    }
    return order;
  }

  // The first element of which it holds that measure(value) of it and those before it is more, in
  // all, than that fraction of the whole that `random` is of 2^64.
  __device__ uint32_t Pick(uint64_t random, const Measure& measure) const {
    constexpr uint32_t kWarps = kRowComputeThreads / 32;
    __shared__ uint64_t sums[kWarps];
    const uint32_t warp = threadIdx.x / 32;
    uint32_t begin = 0, end = columns_;  // where it is
    uint64_t rest = 0;                   // what lies before it from `begin` on
    while (end - begin > 1) {
      // A part for each warp; there may be fewer parts.
      const uint32_t part = (end - begin + kWarps - 1) / kWarps;
      const uint32_t from = begin + warp * part, to = min(end, from + part);
      uint64_t sum = 0;
      for (uint32_t i = from + threadIdx.x % 32; i < to; i += 32) sum += measure(ValueAt(i));
      sum = SumOverWarp(sum);
      if (threadIdx.x % 32 == 0) sums[warp] = sum;
      SyncRowThreads();
      if (end - begin == columns_) {
        uint64_t all = 0;
        for (uint32_t i = 0; i < kWarps; ++i) all += sums[i];
        rest = MultiplyHigh(all, random);
      }
      for (uint32_t i = 0; begin + part < end && rest >= sums[i]; ++i) {
        rest -= sums[i];
        begin += part;
      }
      end = min(end, begin + part);
      SyncRowThreads();  // before sums are written again
    }
    return begin;
  }

 private:
  // The lowest 13 or 16 bits of orders of 2-byte elements are the same for all of one sign.
  static constexpr int kLastShift =
      std::is_same_v<T, float> ? 0 : (std::is_same_v<T, __half> ? 12 : 16);

  __device__ float ValueAt(uint32_t column) const {
    return ToFloat(reinterpret_cast<const T*>(x_)[begin_ + column]);
  }
  // each(value) for this thread's elements.
  template <typename Each>
  __device__ void ForEach(const Each& each) const {
    for (uint32_t column = threadIdx.x * kWidth; column < columns_;
         column += kRowComputeThreads * kWidth) {
      const Pack<T, kWidth> values = *PackAt<T, kWidth>(x_, begin_ + column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) each(ToFloat(values.values[i]));
    }
  }
  static __device__ uint64_t SumOverWarp(uint64_t value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
    return value;
  }
  static __device__ uint64_t SumOfIntegers(uint64_t value) {
    return CombineOverBlock(value, [](uint64_t a, uint64_t b) { return a + b; });
  }

  Address x_;
  uint64_t begin_;
  uint32_t columns_;
};

// The least order of what may be drawn, of a row whose logits weigh `weights`.
template <typename T, int kWidth>
__device__ uint32_t LeastOrder(const SampledRow<T, kWidth>& row, const Draw& draw,
                               const Weights& weights) {
  Measure measure{weights, /*least=*/0, /*counts=*/true};
  // By number, then by weight of what that leaves: one search in code, which is long.
#pragma unroll 1
  for (int search = 0; search < 2; ++search) {
    measure.counts = search == 0;
    if (measure.counts ? draw.top_k == 0 : draw.top_p == 0) continue;
    const uint64_t target = measure.counts ? draw.top_k : TopPTarget(draw, row.Sum(measure));
    measure.least = max(measure.least, row.HighestOrderWith(target, measure));
  }
  return measure.least;
}

// Rows `block`, `block` + `blocks`, ... REQUIRES: kWidth divides columns and the stride, and x is
// aligned to a pack.
template <typename T, int kWidth>
__device__ void Sample(const SampleArgs& args, uint32_t block, uint32_t blocks) {
  __shared__ Draw draw_of_row;
  for (uint64_t index = block; index < args.rows; index += blocks) {
    if (threadIdx.x == 0) draw_of_row = DrawOf(args, index);
    SyncRowThreads();
    const Draw draw = draw_of_row;
    const uint64_t begin = index * args.x_stride;
    // Its barriers also keep draw_of_row until all threads have it.
    const unsigned long long top = HighestRank<T, kWidth>(args.x, begin, args.columns);
    const auto largest = static_cast<uint32_t>(top >> 32);
    uint32_t drawn = PlaceOf(top);
    if (IsDrawn(draw, largest)) {
      const SampledRow<T, kWidth> row(args.x, begin, args.columns);
      const Weights weights(draw, largest);
      const uint32_t least = LeastOrder(row, draw, weights);
      drawn = row.Pick(draw.random, {weights, least, /*counts=*/false});
    }
    if (threadIdx.x == 0) StoreIndex(args.indices, index, args.index_type, drawn);
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_SAMPLE_SAMPLE_CUH_
