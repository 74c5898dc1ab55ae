// How a plan of `auto` is named, so that its outcome finds the choice it was of.
#ifndef CONCERT_POLICIES_PLAN_TAG_H_
#define CONCERT_POLICIES_PLAN_TAG_H_

#include <cstdint>

#include "policies/form.h"

namespace concert::policies {

// A plan's name (Plan::tag): the signature's hash, whose last byte is 0, and in that byte which of
// the signature's choices the plan is of and its form. 0 names nothing.
class PlanTag {
 public:
  static constexpr int kFormBits = 3, kChoiceBits = 5;
  static constexpr uint64_t kMask = (1 << (kFormBits + kChoiceBits)) - 1;
  static_assert(kFormCount < 1 << kFormBits, "a tag has no room for another form");

  static constexpr uint64_t Of(uint64_t signature, uint32_t choice, Form form) {
    return signature | (choice % (1 << kChoiceBits)) << kFormBits |
           (static_cast<uint64_t>(form) + 1);
  }
  static constexpr uint64_t SignatureOf(uint64_t tag) { return tag & ~kMask; }
  static constexpr uint32_t ChoiceOf(uint64_t tag) {
    return static_cast<uint32_t>(tag & kMask) >> kFormBits;
  }
  // kFormCount or more: no form.
  static constexpr uint32_t FormOf(uint64_t tag) {
    return static_cast<uint32_t>(tag % (1 << kFormBits)) - 1;
  }
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_PLAN_TAG_H_
