#include "daemon/sched/hazards.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

using kernels::ByteRange;
using kernels::OpRanges;

// What Extend starts from: holds nothing and overlaps nothing.
constexpr ByteRange kNothing = {std::numeric_limits<kernels::Address>::max(), 0};

void Extend(ByteRange& all, const ByteRange& range) {
  if (range.begin == range.end) return;
  all.begin = std::min(all.begin, range.begin);
  all.end = std::max(all.end, range.end);
}

}  // namespace

WritesInFlight::Slot WritesInFlight::Add(const ByteRange& range) {
  for (int word = 0; word < kWords; ++word) {
    const int bit = std::countr_one(used_[word]);
    if (bit == 64) continue;
    used_[word] |= uint64_t{1} << bit;
    const int slot = word * 64 + bit;
    ranges_[slot] = range;
    size_ = std::max(size_, slot + 1);
    return static_cast<Slot>(slot);
  }
  ++without_slot_;
  return kNoSlot;
}

void WritesInFlight::Remove(Slot slot) {
  if (slot == kNoSlot) {
    CONCERT_CHECK(without_slot_ > 0);
    --without_slot_;
    return;
  }
  ranges_[slot] = {};
  used_[slot / 64] &= ~(uint64_t{1} << slot % 64);
  while (size_ > 0 && (used_[(size_ - 1) / 64] >> (size_ - 1) % 64 & 1) == 0) --size_;
}

ByteRange WritesInFlight::Union() const {
  ByteRange all = kNothing;
  for (int i = 0; i < size_; ++i) Extend(all, ranges_[i]);
  return all;
}

bool WritesInFlight::Overlaps(const ByteRange& range) const {
  bool found = false;  // without a branch per range: nearly always none overlaps
  for (int i = 0; i < size_; ++i) found |= ranges_[i].Overlaps(range);
  return found;
}

bool WeightsSettled(const WritesInFlight& writes, std::span<const OpRanges> ops) {
  if (!writes.complete()) return false;
  const ByteRange earlier = writes.Union();
  ByteRange own = kNothing;
  for (const OpRanges& op : ops) Extend(own, op.written);
  size_t comparisons = 0;
  for (const OpRanges& reader : ops) {
    const ByteRange& read = reader.weights;
    const bool near_earlier = earlier.Overlaps(read), near_own = own.Overlaps(read);
    comparisons +=
        (near_earlier ? static_cast<size_t>(writes.size()) : 0) + (near_own ? ops.size() : 0);
    if (comparisons > kMaxHazardComparisons) return false;
    if (near_earlier && writes.Overlaps(read)) return false;
    if (!near_own) continue;
    size_t writers = 0;
    for (const OpRanges& writer : ops) writers += writer.written.Overlaps(read) ? 1 : 0;
    if (writers > (reader.written.Overlaps(read) ? 1u : 0u)) return false;
  }
  return true;
}

}  // namespace concert::daemon
