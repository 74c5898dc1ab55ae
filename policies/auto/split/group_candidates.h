// Candidates of group launches: which sizes go together, and what follows one by one.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_GROUP_CANDIDATES_H_
#define CONCERT_POLICIES_AUTO_SPLIT_GROUP_CANDIDATES_H_

#include <array>
#include <cstdint>
#include <span>

#include "policies/auto/split/candidate.h"
#include "policies/auto/split/offer.h"

namespace concert::policies {

// Positions in Offer::by_time: [0, long_from) is one group, [long_from, alone_from) the next, and
// what follows is launched one by one. Groups of several dtypes are several launches.
struct Grouping {
  int long_from = 0;
  int alone_from = 0;
};

// Those worth a try, in this order. None for fewer than two ops that may go into groups.
class Groupings {
 public:
  explicit Groupings(const Offer& offer);
  std::span<const Grouping> all() const { return {groupings_.data(), static_cast<size_t>(count_)}; }

 private:
  void Add(Grouping grouping) { groupings_[count_++] = grouping; }

  std::array<Grouping, 7> groupings_;  // one of all, two at a gap, one at the half, three alone
  int count_ = 0;
};

// The steps of `grouping`, without times but of ops that are alone in one; urgent ones first.
// `join_rows`: row ops share launches. `max_repack_bytes`: of one group.
void BuildCandidate(const Offer& offer, Grouping grouping, bool join_rows,
                    uint64_t max_repack_bytes, Candidate& candidate);
// Launches by the library what the candidate, whose steps are of one op each, has as groups.
void UseLibrary(const Offer& offer, Candidate& candidate);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_GROUP_CANDIDATES_H_
