// The hash of the tables in policies/ and of the work lists' compiler. They all compare whole keys,
// so a hash decides how long a lookup takes and nothing else.
#ifndef CONCERT_POLICIES_SEAM_HASH_H_
#define CONCERT_POLICIES_SEAM_HASH_H_

#include <cstdint>

#include "policies/seam/work.h"

namespace concert::policies {

// `hash` with `value` behind what it stands for already: the order counts. Multiplicative hashing
// (Knuth, The Art of Computer Programming 3, 6.4), folded because tables look at the lowest bits.
constexpr uint64_t Chain(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
  return hash ^ hash >> 32;
}

constexpr uint64_t HashProblem(const Problem& problem) {
  const uint64_t hash = Chain(0, uint64_t{problem.m} << 32 | problem.n);
  return Chain(
      hash, uint64_t{problem.k} << 32 | problem.batch << 8 | static_cast<uint64_t>(problem.dtype));
}

// Of every field. The products are independent, so that the CPU overlaps them: multilinear hashing
// (Carter and Wegman, 1979), whose factors are random odd numbers.
uint64_t HashWork(const Work& work);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_HASH_H_
