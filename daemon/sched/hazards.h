// Whether a launch may read its weights before earlier work has ended: which memory the ops in
// flight write, and whether a launch reads any of it. Everything by bounding ranges.
#ifndef CONCERT_DAEMON_SCHED_HAZARDS_H_
#define CONCERT_DAEMON_SCHED_HAZARDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
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
  // bounds()[i] holds kPerBound written ranges from the (kPerBound * i)-th on. What is written
  // often lies among what is read, but that of a few ops together.
  static constexpr size_t kPerBound = 8;
  std::span<const kernels::ByteRange> bounds() const { return bounds_; }

 private:
  struct End {  // of an op's ranges in the lists
    uint16_t written, early;
  };
  std::vector<kernels::ByteRange> written_, early_, bounds_;
  std::vector<End> ends_;
};

// The ranges that unfinished ops write, in blocks of 64 with a bound each, so that a question looks
// into few of however many there are: what was launched together lies together. Fixed size. Not
// thread-safe.
class WritesInFlight {
 public:
  static constexpr int kCapacity = 4096;  // beyond it nothing is known to be ready
  static constexpr int kMaxSlots = 4;     // of an op; one that writes more has none
  // Holds nothing and overlaps nothing: what a bound starts from.
  static constexpr kernels::ByteRange kNothing = {std::numeric_limits<kernels::Address>::max(), 0};

  // Of one op.
  struct Slots {
    std::array<uint16_t, kMaxSlots> slot{};
    uint8_t count = 0;
    bool missing = false;  // what it writes is not listed, or not all of it
  };

  // The ranges count until the slots are given to Remove. Fills in `slots` where they stay.
  void Add(std::span<const kernels::ByteRange> ranges, Slots& slots);
  void Remove(const Slots& slots);

  // Whether every range in flight has a slot: if not, Overlaps knows only some.
  bool complete() const { return missing_ == 0; }
  // A range that holds all in flight, perhaps more.
  kernels::ByteRange Union() const;
  // `comparisons`: counts up by those it took. Tightens bounds that have misled it.
  bool Overlaps(const kernels::ByteRange& range, size_t& comparisons);

 private:
  static constexpr int kBlocks = kCapacity / 64;
  static_assert(kBlocks <= 64);

  struct Block {
    uint64_t used = 0;                    // bit i: ranges[i]
    kernels::ByteRange bound = kNothing;  // of all; wider while `loose`
    // Something has been removed since. Whoever looks in vain tightens the bound.
    bool loose = false;
    // Freed ones are empty and are used again, lowest first.
    std::array<kernels::ByteRange, 64> ranges{};
  };

  bool AddOne(const kernels::ByteRange& range, Slots& slots);
  static void Tighten(Block& block);

  std::vector<Block> blocks_ = std::vector<Block>(kBlocks);
  uint64_t used_ = 0;     // bit i: blocks_[i] holds something
  uint64_t full_ = 0;     // bit i: blocks_[i] has no room
  uint32_t missing_ = 0;  // ops whose writes are not all listed
};

// Comparisons that one launch may cost, or a little more: some 2 us.
inline constexpr size_t kMaxHazardComparisons = 4096;

// True if no unfinished op writes what an op of the launch may read early, and no op of the launch
// what another one may. False also when finding out would take more than kMaxHazardComparisons. The
// launch's ops are not among `writes` yet.
bool WeightsReady(WritesInFlight& writes, const LaunchRanges& launch);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_HAZARDS_H_
