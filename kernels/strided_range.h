// Bytes of a strided operand, to the byte: for whoever must not take neighbours for the same bytes,
// as the columns of one matrix that two ops write side by side. A bounding ByteRange is cheaper.
#ifndef CONCERT_KERNELS_STRIDED_RANGE_H_
#define CONCERT_KERNELS_STRIDED_RANGE_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/op.h"

namespace concert::kernels {

// Runs of `run_bytes` bytes, at begin + i * levels[0].stride + j * levels[1].stride for all i and j
// below the levels' counts. Along a level no run touches the next: what is dense has none.
struct StridedRange {
  struct Level {
    uint64_t count = 1, stride = 0;  // in bytes
    bool operator==(const Level&) const = default;
  };

  Address begin = 0;
  uint64_t run_bytes = 0;
  std::array<Level, 2> levels{};  // the first level_count, by stride
  uint8_t level_count = 0;

  // `batch` matrices of `rows` rows. REQUIRES: rows and batch >= 1, strides in bytes, and the end
  // fits in 64 bits.
  static StridedRange Of(Address begin, uint64_t row_bytes, uint64_t rows, uint64_t row_stride,
                         uint64_t batch = 1, uint64_t batch_stride = 0) {
    StridedRange range;
    range.Set(begin, row_bytes, rows, row_stride, batch, batch_stride);
    return range;
  }
  // The same where it is to lie, inline for one matrix: every launch asks for each of its operands,
  // and to copy one that was just written word by word takes longer than to write it.
  void Set(Address first, uint64_t row_bytes, uint64_t rows, uint64_t row_stride,
           uint64_t batch = 1, uint64_t batch_stride = 0) {
    begin = first;
    run_bytes = row_bytes;
    level_count = 0;
    if (batch > 1) {
      SetLevels({Level{rows, row_stride}, Level{batch, batch_stride}});
    } else if (row_stride <= row_bytes) {
      run_bytes += (rows - 1) * row_stride;
    } else if (rows > 1) {
      levels[level_count++] = {rows, row_stride};
    }
  }
  void Set(Address first, uint64_t bytes) { Set(first, bytes, 1, 0); }
  static StridedRange Of(Address begin, uint64_t bytes) { return Of(begin, bytes, 1, 0); }
  // Whether both are the same runs.
  bool operator==(const StridedRange& other) const {
    return begin == other.begin && run_bytes == other.run_bytes &&
           std::equal(levels.begin(), levels.begin() + level_count, other.levels.begin(),
                      other.levels.begin() + other.level_count);
  }
  // The smallest range that holds all of it.
  ByteRange Bounds() const {
    uint64_t bytes = run_bytes;
    for (int i = 0; i < level_count; ++i) bytes += (levels[i].count - 1) * levels[i].stride;
    return {begin, begin + bytes};
  }

 private:
  void SetLevels(std::array<Level, 2> all);
};

// True if a byte is in both. False also when finding out takes more than `pieces_left`, which it
// counts down: what it says is shared is. One piece takes some 10 ns. One or two are enough where
// neither has more than one level and, if both have one, the strides are the same; strides of their
// own and nothing in common can take as many as there are runs.
bool Meet(const StridedRange& a, const StridedRange& b, int& pieces_left);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_STRIDED_RANGE_H_
