// Memory that slots share when they are not in use at the same time.
#ifndef CONCERT_KERNELS_PROGRAM_ARENA_H_
#define CONCERT_KERNELS_PROGRAM_ARENA_H_

#include <cstdint>
#include <map>
#include <span>

namespace concert::kernels {

// A set of bytes, which are there in ranges [begin, end).
class ByteSet {
 public:
  void Add(uint64_t begin, uint64_t end);
  // Whether it has all of these bytes.
  bool Covers(uint64_t begin, uint64_t end) const;
  // Whether it has any of them.
  bool Overlaps(uint64_t begin, uint64_t end) const;

 private:
  std::map<uint64_t, uint64_t> ranges_;  // end by begin; none touches the next
};

struct ArenaSlot {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;  // ops that use it; an unused one has first > last
  uint64_t offset = 0;           // filled in
};

// Places slots, the largest first, each as low as it fits (greedy by size: within a few percent of
// the least possible for networks' intermediates, Pisarchyk and Lee, "Efficient Memory Management
// for Deep Neural Net Inference", 2020). Offsets are multiples of `alignment`, a power of two.
// Returns the bytes that are needed. REQUIRES: their sum fits in 63 bits.
uint64_t PlaceSlots(std::span<ArenaSlot> slots, uint64_t alignment);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_ARENA_H_
