// How a plan of `auto` is named, so that its outcome finds the choice it was of.
#ifndef CONCERT_POLICIES_COST_PLAN_TAG_H_
#define CONCERT_POLICIES_COST_PLAN_TAG_H_

#include <cstdint>

#include "policies/seam/form.h"

namespace concert::policies {

// A plan's name (Plan::tag): the signature's hash, whose last byte is 0, and in that byte which of
// the signature's choices the plan is of and its arrangement. 0 names nothing.
class PlanTag {
 public:
  static constexpr int kArrangementBits = 3, kChoiceBits = 5;
  static constexpr uint64_t kMask = (1 << (kArrangementBits + kChoiceBits)) - 1;
  static_assert(kArrangementCount < 1 << kArrangementBits,
                "a tag has no room for another arrangement");

  static constexpr uint64_t Of(uint64_t signature, uint32_t choice, Arrangement arrangement) {
    return signature | (choice % (1 << kChoiceBits)) << kArrangementBits |
           (static_cast<uint64_t>(arrangement) + 1);
  }
  static constexpr uint64_t SignatureOf(uint64_t tag) { return tag & ~kMask; }
  static constexpr uint32_t ChoiceOf(uint64_t tag) {
    return static_cast<uint32_t>(tag & kMask) >> kArrangementBits;
  }
  // kArrangementCount or more: none.
  static constexpr uint32_t ArrangementOf(uint64_t tag) {
    return static_cast<uint32_t>(tag % (1 << kArrangementBits)) - 1;
  }
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_PLAN_TAG_H_
