// Philox4x32-10, a generator of random numbers without state: Salmon, Moraes, Dror and Shaw,
// Parallel random numbers: as easy as 1, 2, 3; SC'11. For host and device code.
#ifndef CONCERT_KERNELS_SAMPLE_PHILOX_H_
#define CONCERT_KERNELS_SAMPLE_PHILOX_H_

#include <cstdint>

#include "kernels/indices.h"

namespace concert::kernels {

// Four words: a counter, or what it becomes. Each counter of a key becomes another.
struct PhiloxWords {
  uint32_t words[4];
};

CONCERT_ON_BOTH_SIDES inline PhiloxWords Philox(PhiloxWords counter, uint64_t key) {
  constexpr uint64_t kMultipliers[2] = {0xD2511F53u, 0xCD9E8D57u};
  constexpr uint32_t kKeySteps[2] = {0x9E3779B9u, 0xBB67AE85u};
  uint32_t keys[2] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  uint32_t(&words)[4] = counter.words;
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = kMultipliers[0] * words[0], second = kMultipliers[1] * words[2];
    words[0] = static_cast<uint32_t>(second >> 32) ^ words[1] ^ keys[0];
    words[1] = static_cast<uint32_t>(second);
    words[2] = static_cast<uint32_t>(first >> 32) ^ words[3] ^ keys[1];
    words[3] = static_cast<uint32_t>(first);
    keys[0] += kKeySteps[0];
    keys[1] += kKeySteps[1];
  }
  return counter;
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_SAMPLE_PHILOX_H_
