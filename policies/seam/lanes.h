// The fixed lanes of every GPU. A lane is a stream at a priority; work on one lane runs in order.
// Every device has all of them from its start, so that a plan can name a lane by number.
#ifndef CONCERT_POLICIES_SEAM_LANES_H_
#define CONCERT_POLICIES_SEAM_LANES_H_

#include <cstdint>

#include "policies/seam/work.h"

namespace concert::policies {

using Lane = uint8_t;

inline constexpr Lane kFirstNormalLane = 0;  // all but collectives
inline constexpr int kNormalLaneCount = 8;
inline constexpr Lane kFirstHighLane =
    8;  // the same, launched ahead of waiting blocks of other lanes
inline constexpr int kHighLaneCount = 4;
inline constexpr Lane kCollectiveLane = 12;      // collectives at normal priority
inline constexpr Lane kHighCollectiveLane = 13;  // collectives at high priority
inline constexpr int kLaneCount = 14;
inline constexpr Lane kNoLane = 255;

// Lanes on which group launches follow one another with the group kernel: of the normal, the low
// and the high class. Elsewhere their GEMMs run one after the other.
inline constexpr int kGroupLaneCount = 3;
inline constexpr Lane kGroupLanes[kGroupLaneCount] = {kFirstNormalLane, kFirstNormalLane + 1,
                                                      kFirstHighLane};
// Its index in kGroupLanes, or -1.
constexpr int GroupLaneIndex(Lane lane) {
  for (int i = 0; i < kGroupLaneCount; ++i) {
    if (kGroupLanes[i] == lane) return i;
  }
  return -1;
}

constexpr bool IsHighPriority(Lane lane) {
  return (lane >= kFirstHighLane && lane < kFirstHighLane + kHighLaneCount) ||
         lane == kHighCollectiveLane;
}
constexpr bool IsCollectiveLane(Lane lane) {
  return lane == kCollectiveLane || lane == kHighCollectiveLane;
}

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_LANES_H_
