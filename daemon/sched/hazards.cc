#include "daemon/sched/hazards.h"

#include <algorithm>
#include <bit>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

using kernels::ByteRange;

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
  bounds_.reserve(max_ops * kernels::kMaxOperands / kPerBound + 1);
  ends_.reserve(max_ops);
}

void LaunchRanges::Clear() {
  written_.clear();
  early_.clear();
  bounds_.clear();
  ends_.clear();
}

void LaunchRanges::Add(const kernels::Accesses& accesses) {
  for (const kernels::Access& access : accesses.list()) {
    if (access.writes()) {
      if (written_.size() % kPerBound == 0) bounds_.push_back(WritesInFlight::kNothing);
      written_.push_back(access.memory.Bounds());
      Extend(bounds_.back(), written_.back());
    } else if (access.mode == kernels::AccessMode::kReadEarly) {
      early_.push_back(access.memory.Bounds());
    }
  }
  ends_.push_back({static_cast<uint16_t>(written_.size()), static_cast<uint16_t>(early_.size())});
}

void WritesInFlight::Add(std::span<const ByteRange> ranges, Slots& slots) {
  slots.count = 0;
  slots.missing = false;
  for (const ByteRange& range : ranges) slots.missing |= !AddOne(range, slots);
  missing_ += slots.missing ? 1 : 0;
}

bool WritesInFlight::AddOne(const ByteRange& range, Slots& slots) {
  const int index = std::countr_one(full_);
  if (slots.count == kMaxSlots || index == kBlocks) return false;
  Block& block = blocks_[index];
  const int place = std::countr_one(block.used);
  block.used |= uint64_t{1} << place;
  block.ranges[place] = range;
  Extend(block.bound, range);
  used_ |= uint64_t{1} << index;
  if (block.used == ~uint64_t{0}) full_ |= uint64_t{1} << index;
  slots.slot[slots.count++] = static_cast<uint16_t>(index * 64 + place);
  return true;
}

void WritesInFlight::Remove(const Slots& slots) {
  if (slots.missing) {
    CONCERT_CHECK(missing_ > 0);
    --missing_;
  }
  for (int i = 0; i < slots.count; ++i) {
    const int index = slots.slot[i] / 64, place = slots.slot[i] % 64;
    Block& block = blocks_[index];
    block.ranges[place] = {};
    block.used &= ~(uint64_t{1} << place);
    full_ &= ~(uint64_t{1} << index);
    block.loose = block.used != 0;
    if (block.loose) continue;
    used_ &= ~(uint64_t{1} << index);
    block.bound = kNothing;
  }
}

void WritesInFlight::Tighten(Block& block) {
  block.loose = false;
  block.bound = kNothing;
  for (uint64_t left = block.used; left != 0; left &= left - 1)
    Extend(block.bound, block.ranges[std::countr_zero(left)]);
}

ByteRange WritesInFlight::Union() const {
  ByteRange all = kNothing;
  for (uint64_t left = used_; left != 0; left &= left - 1)
    Extend(all, blocks_[std::countr_zero(left)].bound);
  return all;
}

bool WritesInFlight::Overlaps(const ByteRange& range, size_t& comparisons) {
  for (uint64_t left = used_; left != 0; left &= left - 1) {
    Block& block = blocks_[std::countr_zero(left)];
    ++comparisons;
    if (!block.bound.Overlaps(range)) continue;
    const size_t count = std::bit_width(block.used);
    comparisons += count;
    bool found = false;  // without a branch per range: nearly always none overlaps
    for (size_t i = 0; i < count; ++i) found |= block.ranges[i].Overlaps(range);
    if (found) return true;
    if (!block.loose) continue;
    Tighten(block);
    comparisons += count;
  }
  return false;
}

namespace {

// Ranges that the launch writes and that overlap `range`. Counts up by the comparisons it took.
size_t CountWritten(const LaunchRanges& launch, const ByteRange& range, size_t& comparisons) {
  const std::span<const ByteRange> written = launch.written(), bounds = launch.bounds();
  size_t count = 0;
  comparisons += bounds.size();
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (!bounds[i].Overlaps(range)) continue;
    const size_t first = i * LaunchRanges::kPerBound;
    const size_t size = std::min(LaunchRanges::kPerBound, written.size() - first);
    count += CountOverlaps(written.subspan(first, size), range);
    comparisons += size;
  }
  return count;
}

}  // namespace

bool WeightsReady(WritesInFlight& writes, const LaunchRanges& launch) {
  if (!writes.complete()) return false;
  const ByteRange earlier = writes.Union();
  ByteRange own = WritesInFlight::kNothing;
  for (const ByteRange& bound : launch.bounds()) Extend(own, bound);
  size_t comparisons = 0;
  for (size_t op = 0; op < launch.op_count(); ++op) {
    for (const ByteRange& read : launch.early(op)) {
      if (comparisons > kMaxHazardComparisons) return false;
      if (earlier.Overlaps(read) && writes.Overlaps(read, comparisons)) return false;
      if (!own.Overlaps(read)) continue;
      if (CountWritten(launch, read, comparisons) > CountOverlaps(launch.written(op), read))
        return false;
    }
  }
  return true;
}

}  // namespace concert::daemon
