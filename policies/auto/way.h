// The ways in which `auto` can plan the same work, and what of a plan its way is measured by.
#ifndef CONCERT_POLICIES_AUTO_WAY_H_
#define CONCERT_POLICIES_AUTO_WAY_H_

#include <cstdint>

#include "policies/seam/hash.h"
#include "policies/seam/work.h"

namespace concert::policies {

enum class Way : uint8_t {
  kPredicted,  // whatever is predicted fastest
  kGroups,     // what the group kernel can carry goes in groups
  kStreams,    // library kernels side by side
  kInTurn,     // library kernels one after the other
};
inline constexpr int kWayCount = 4;

struct Effort {
  double roofline_us = 0;  // of all ops, added up
  uint64_t weights = 0;    // a bit for each weights' shape (n, k, dtype), by hash

  void Add(const Work& work, double its_roofline_us) {
    const uint64_t hash = Chain(Chain(Chain(0, work.n), work.k), static_cast<uint64_t>(work.dtype));
    roofline_us += its_roofline_us;
    weights |= uint64_t{1} << (hash >> 58);
  }
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_WAY_H_
