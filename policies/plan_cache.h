// What `auto` chose for signatures seen before. Fixed size; allocates nothing.
#ifndef CONCERT_POLICIES_PLAN_CACHE_H_
#define CONCERT_POLICIES_PLAN_CACHE_H_

#include <array>
#include <cstdint>
#include <optional>

#include "policies/lanes.h"
#include "policies/plan.h"
#include "policies/work.h"

namespace concert::policies {

inline constexpr int kMaxCompany = kNormalLaneCount;  // GEMMs that one choice covers
inline constexpr int kMaxFronts = kNormalLaneCount + kHighLaneCount;

// All that a choice depends on, and nothing else: lane numbers and times are left out, so that a
// steady load repeats a few signatures.
struct Signature {
  // The last GEMM launched on a lane. `follower`: which of the candidate GEMMs goes behind it on
  // that lane.
  struct Front {
    Work work;
    int8_t follower = -1;
    friend bool operator==(const Front&, const Front&) = default;
  };

  std::array<Work, kMaxCompany> gemms;  // candidates, first come first
  std::array<Front, kMaxFronts> fronts;
  uint8_t gemm_count = 0;
  uint8_t front_count = 0;
  uint64_t hash = 0;  // of all of the above, in order

  void Clear();
  void AddGemm(const Work& work, uint64_t work_hash);  // the latter is HashWork(work)
  void AddFront(const Work& work, int follower);
};

// Compares everything but the hash.
bool operator==(const Signature& a, const Signature& b);

// The first `count` of a signature's GEMMs, in `form`.
struct Choice {
  Form form = Form::kSingle;
  uint8_t count = 1;
  friend bool operator==(const Choice&, const Choice&) = default;
};

// Direct-mapped: a new signature replaces the one in its slot. A hit compares the whole signature,
// so a choice never depends on the hash. Not thread-safe.
class PlanCache {
 public:
  std::optional<Choice> Find(const Signature& signature) const;
  void Insert(const Signature& signature, Choice choice);

 private:
  static constexpr int kSlots = 512;
  struct Slot {
    Signature signature;  // gemm_count 0: empty
    Choice choice;
  };
  std::array<Slot, kSlots> slots_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_PLAN_CACHE_H_
