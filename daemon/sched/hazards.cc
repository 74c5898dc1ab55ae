#include "daemon/sched/hazards.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

using kernels::ByteRange;

// What Extend starts from: holds nothing and overlaps nothing.
constexpr ByteRange kNothing = {std::numeric_limits<kernels::Address>::max(), 0};

void Extend(ByteRange& all, const ByteRange& range) {
  if (range.begin == range.end) return;
  all.begin = std::min(all.begin, range.begin);
  all.end = std::max(all.end, range.end);
}

// Ranges that overlap `range`.
size_t CountOverlaps(std::span<const ByteRange> ranges, const ByteRange& range) {
  size_t count = 0;
  for (const ByteRange& other : ranges) count += other.Overlaps(range) ? 1 : 0;
  return count;
}

}  // namespace

LaunchRanges::LaunchRanges(size_t max_ops) {
  written_.reserve(max_ops * kernels::kMaxOperands);
  early_.reserve(max_ops * kernels::kMaxOperands);
  ends_.reserve(max_ops);
}

void LaunchRanges::Clear() {
  written_.clear();
  early_.clear();
  ends_.clear();
}

void LaunchRanges::Add(const kernels::Accesses& accesses) {
  for (const kernels::Access& access : accesses.list()) {
    if (access.writes()) {
      written_.push_back(access.memory.Bounds());
    } else if (access.mode == kernels::AccessMode::kReadEarly) {
      early_.push_back(access.memory.Bounds());
    }
  }
  ends_.push_back({static_cast<uint16_t>(written_.size()), static_cast<uint16_t>(early_.size())});
}

WritesInFlight::Slots WritesInFlight::Add(std::span<const ByteRange> ranges) {
  Slots slots;
  for (const ByteRange& range : ranges) slots.missing |= !AddOne(range, slots);
  missing_ += slots.missing ? 1 : 0;
  return slots;
}

bool WritesInFlight::AddOne(const ByteRange& range, Slots& slots) {
  if (slots.count == kMaxSlots) return false;
  for (int word = 0; word < kWords; ++word) {
    const int bit = std::countr_one(used_[word]);
    if (bit == 64) continue;
    used_[word] |= uint64_t{1} << bit;
    const int slot = word * 64 + bit;
    ranges_[slot] = range;
    size_ = std::max(size_, slot + 1);
    slots.slot[slots.count++] = static_cast<uint8_t>(slot);
    return true;
  }
  return false;
}

void WritesInFlight::Remove(const Slots& slots) {
  if (slots.missing) {
    CONCERT_CHECK(missing_ > 0);
    --missing_;
  }
  for (int i = 0; i < slots.count; ++i) {
    const uint8_t slot = slots.slot[i];
    ranges_[slot] = {};
    used_[slot / 64] &= ~(uint64_t{1} << slot % 64);
  }
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

bool WeightsSettled(const WritesInFlight& writes, const LaunchRanges& launch) {
  if (!writes.complete()) return false;
  const ByteRange earlier = writes.Union();
  ByteRange own = kNothing;
  for (const ByteRange& written : launch.written()) Extend(own, written);
  size_t comparisons = 0;
  for (size_t op = 0; op < launch.op_count(); ++op) {
    for (const ByteRange& read : launch.early(op)) {
      const bool near_earlier = earlier.Overlaps(read), near_own = own.Overlaps(read);
      comparisons += (near_earlier ? static_cast<size_t>(writes.size()) : 0) +
                     (near_own ? launch.written().size() : 0);
      if (comparisons > kMaxHazardComparisons) return false;
      if (near_earlier && writes.Overlaps(read)) return false;
      if (!near_own) continue;
      if (CountOverlaps(launch.written(), read) > CountOverlaps(launch.written(op), read))
        return false;
    }
  }
  return true;
}

}  // namespace concert::daemon
