// Programs of random ops of all kinds, over random memory.
#ifndef CONCERT_TESTS_E2E_RANDOM_PROGRAM_H_
#define CONCERT_TESTS_E2E_RANDOM_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/include/concert/concert.hpp"

namespace concert::test {

// Where a program has what it works on: what no op writes; what a run leaves to the next; what ops
// pass to one another; what a run brings and takes.
enum class Place : uint8_t { kWeights, kState, kArena, kBinding };
inline constexpr size_t kPlaces = 4;

// A range of memory that ops use.
struct Piece {
  Place place;
  uint64_t offset, bytes;  // in the image of its place
  Dtype dtype;             // of its numbers
  // What is in it hangs on which of two numbers is larger, so that another rounding may change all.
  bool drawn = false;
};

struct RandomProgram {
  // Where a piece lies, whoever runs the ops.
  using Memory = std::function<Slice(size_t piece)>;
  using Submit = std::function<Ticket(Queue& queue, const Memory& memory)>;

  const std::vector<uint8_t>& image(Place place) const {
    return images[static_cast<size_t>(place)];
  }
  std::string Describe() const;

  uint32_t rows = 0, length_max = 0;  // length_max: of the longest context
  std::vector<Piece> pieces;
  // By place, what is there before a run: pieces at multiples of 256 bytes, between guards. Of the
  // arena it is poison.
  std::array<std::vector<uint8_t>, kPlaces> images;
  std::vector<Submit> ops;         // each follows the one before
  std::vector<const char*> kinds;  // of ops
};

// The same for the same seed. Of most, contexts have up to 2,048 tokens, of some up to 32,768. At
// most CONCERT_BINDINGS_MAX bindings; ops read of the arena only what ops before them wrote.
RandomProgram MakeRandomProgram(uint32_t seed);

}  // namespace concert::test

#endif  // CONCERT_TESTS_E2E_RANDOM_PROGRAM_H_
