// Whether a launch may read its weights before earlier work has ended: which memory the ops in
// flight write, and whether a launch reads any of it.
#ifndef CONCERT_DAEMON_SCHED_HAZARDS_H_
#define CONCERT_DAEMON_SCHED_HAZARDS_H_

#include <array>
#include <cstdint>
#include <span>

#include "kernels/op.h"

namespace concert::daemon {

// The ranges that unfinished ops write. Fixed size; constant time but for Union and Overlaps. Not
// thread-safe.
class WritesInFlight {
 public:
  using Slot = uint8_t;
  static constexpr int kCapacity = 128;  // beyond it nothing is known to be settled
  static constexpr Slot kNoSlot = 255;

  // The range counts until its slot is given to Remove. kNoSlot when all are in use; that too must
  // be removed.
  Slot Add(const kernels::ByteRange& range);
  void Remove(Slot slot);

  // Whether every range in flight has a slot: if not, Overlaps knows only some.
  bool complete() const { return without_slot_ == 0; }
  // Slots that may be in use: what one Overlaps compares with.
  int size() const { return size_; }
  // The smallest range that holds all in flight.
  kernels::ByteRange Union() const;
  bool Overlaps(const kernels::ByteRange& range) const;

 private:
  static constexpr int kWords = kCapacity / 64;

  // Freed slots hold empty ranges and are used again lowest first, so that size_ stays small.
  std::array<kernels::ByteRange, kCapacity> ranges_{};
  std::array<uint64_t, kWords> used_{};
  int size_ = 0;
  uint32_t without_slot_ = 0;
};

// Comparisons that one launch may cost: some 2 us.
inline constexpr size_t kMaxHazardComparisons = 4096;

// True if no unfinished op writes the weights of an op of the launch, and no op of the launch those
// of another. False also when finding out would take more than kMaxHazardComparisons. `ops` are not
// among `writes` yet.
bool WeightsSettled(const WritesInFlight& writes, std::span<const kernels::OpRanges> ops);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_HAZARDS_H_
