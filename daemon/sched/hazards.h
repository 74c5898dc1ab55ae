// Whether a launch may read its weights before earlier work has ended: which memory the ops in
// flight write, and whether a launch reads any of it. Everything by bounding ranges.
#ifndef CONCERT_DAEMON_SCHED_HAZARDS_H_
#define CONCERT_DAEMON_SCHED_HAZARDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/access.h"
#include "kernels/op.h"

namespace concert::daemon {

// What the ops of one launch write and what they may read early. Allocates nothing once made. Not
// thread-safe.
class LaunchRanges {
 public:
  explicit LaunchRanges(size_t max_ops);

  void Clear();
  // The next op's.
  void Add(const kernels::Accesses& accesses);

  size_t op_count() const { return ends_.size(); }
  std::span<const kernels::ByteRange> written() const { return written_; }
  std::span<const kernels::ByteRange> written(size_t op) const {
    const size_t begin = op == 0 ? 0 : ends_[op - 1].written;
    return std::span(written_).subspan(begin, ends_[op].written - begin);
  }
  std::span<const kernels::ByteRange> early(size_t op) const {
    const size_t begin = op == 0 ? 0 : ends_[op - 1].early;
    return std::span(early_).subspan(begin, ends_[op].early - begin);
  }

 private:
  struct End {  // of an op's ranges in the lists
    uint16_t written, early;
  };
  std::vector<kernels::ByteRange> written_, early_;
  std::vector<End> ends_;
};

// The ranges that unfinished ops write. Fixed size; constant time but for Union and Overlaps. Not
// thread-safe.
class WritesInFlight {
 public:
  static constexpr int kCapacity = 128;  // beyond it nothing is known to be settled
  static constexpr int kMaxSlots = 2;    // of an op; one that writes more has none

  // Of one op.
  struct Slots {
    std::array<uint8_t, kMaxSlots> slot;
    uint8_t count = 0;
    bool missing = false;  // what it writes is not listed, or not all of it
  };

  // The ranges count until the slots are given to Remove.
  Slots Add(std::span<const kernels::ByteRange> ranges);
  void Remove(const Slots& slots);

  // Whether every range in flight has a slot: if not, Overlaps knows only some.
  bool complete() const { return missing_ == 0; }
  // Slots that may be in use: what one Overlaps compares with.
  int size() const { return size_; }
  // The smallest range that holds all in flight.
  kernels::ByteRange Union() const;
  bool Overlaps(const kernels::ByteRange& range) const;

 private:
  static constexpr int kWords = kCapacity / 64;

  bool AddOne(const kernels::ByteRange& range, Slots& slots);

  // Freed slots hold empty ranges and are used again lowest first, so that size_ stays small.
  std::array<kernels::ByteRange, kCapacity> ranges_{};
  std::array<uint64_t, kWords> used_{};
  int size_ = 0;
  uint32_t missing_ = 0;  // ops whose writes are not all listed
};

// Comparisons that one launch may cost: some 2 us.
inline constexpr size_t kMaxHazardComparisons = 4096;

// True if no unfinished op writes what an op of the launch may read early, and no op of the launch
// what another one may. False also when finding out would take more than kMaxHazardComparisons. The
// launch's ops are not among `writes` yet.
bool WeightsSettled(const WritesInFlight& writes, const LaunchRanges& launch);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_HAZARDS_H_
