#include "kernels/program/arena.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

namespace concert::kernels {

void ByteSet::Add(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != ranges_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ranges_.erase(next);
  }
  ranges_.emplace(begin, end);
}

bool ByteSet::Covers(uint64_t begin, uint64_t end) const {
  const auto next = ranges_.upper_bound(begin);
  return begin >= end || (next != ranges_.begin() && std::prev(next)->second >= end);
}

bool ByteSet::Overlaps(uint64_t begin, uint64_t end) const {
  const auto behind = ranges_.lower_bound(end);
  return begin < end && behind != ranges_.begin() && std::prev(behind)->second > begin;
}

uint64_t PlaceSlots(std::span<ArenaSlot> slots, uint64_t alignment) {
  std::vector<size_t> order(slots.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return slots[a].bytes > slots[b].bytes; });
  const auto aligned = [alignment](uint64_t bytes) {
    return (bytes + alignment - 1) & ~(alignment - 1);
  };
  std::vector<const ArenaSlot*> placed;  // by offset
  uint64_t bytes = 0;
  for (const size_t index : order) {
    ArenaSlot& slot = slots[index];
    if (slot.first > slot.last) continue;
    uint64_t offset = 0;
    for (const ArenaSlot* other : placed) {
      if (other->last < slot.first || slot.last < other->first) continue;
      if (other->offset >= offset + slot.bytes) break;
      offset = std::max(offset, aligned(other->offset + other->bytes));
    }
    slot.offset = offset;
    bytes = std::max(bytes, aligned(offset + slot.bytes));
    placed.insert(std::upper_bound(
                      placed.begin(), placed.end(), &slot,
                      [](const ArenaSlot* a, const ArenaSlot* b) { return a->offset < b->offset; }),
                  &slot);
  }
  return bytes;
}

}  // namespace concert::kernels
