// What the ranks of a benchmark's collective give and must get.
#ifndef CONCERT_TESTS_BENCH_OVERLAP_DATA_H_
#define CONCERT_TESTS_BENCH_OVERLAP_DATA_H_

#include <cstdint>
#include <span>
#include <vector>

#include "tests/bench/collective_shape.h"

namespace concert::bench {

// Every rank's input: bf16, uniform in [-1, 1), another sequence for each rank. A sequence comes
// again after kPeriodBytes, a prime number of MiB, so that chunks in the wrong place show, whatever
// their size. Immutable; any thread.
class OverlapData {
 public:
  static constexpr uint64_t kPeriodBytes = uint64_t{61} << 20;

  // For collectives of up to so many ranks and bytes of input. Deterministic for a seed.
  OverlapData(uint32_t ranks, uint64_t most_bytes, uint64_t seed);

  // What a rank's input begins with, at most `bytes` bytes.
  std::span<const uint8_t> Input(uint32_t rank, uint64_t bytes) const;
  // What a rank's output holds before a run: NaN, but of collectives in place what is its input.
  std::vector<uint8_t> Before(const CollectiveShape& shape, uint32_t rank) const;
  // What it holds after one, summed in rank order in fp32 and rounded once.
  std::vector<uint8_t> After(const CollectiveShape& shape, uint32_t rank) const;

 private:
  // A part of a rank's input.
  std::vector<uint8_t> Part(uint32_t rank, uint64_t offset, uint64_t bytes) const;
  std::vector<uint8_t> Sum(uint64_t offset, uint64_t bytes, uint32_t ranks) const;

  uint64_t period_bytes_;
  std::vector<std::vector<uint8_t>> sequences_;  // [rank], one period
};

// The relative Frobenius error of bf16 numbers; 0 where all bits are equal, NaN where one is.
double RelativeErrorOfBf16(std::span<const uint8_t> expected, std::span<const uint8_t> got);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_OVERLAP_DATA_H_
