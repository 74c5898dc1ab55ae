// What measured times say about predictions: for every signature and form, the ratio of the two.
#ifndef CONCERT_POLICIES_CORRECTIONS_H_
#define CONCERT_POLICIES_CORRECTIONS_H_

#include <array>
#include <cstdint>

#include "policies/partition.h"

namespace concert::policies {

// Fixed memory: a new signature replaces the one in its slot. Not thread-safe.
class Corrections {
 public:
  // A ratio is believed within these bounds: beyond them something other than the kernel took the
  // time.
  static constexpr float kMin = 0.5f, kMax = 2.0f;
  // Eight 512x4096x4096 of chains, at the power limit, take 1.13 times what is predicted for a
  // group and 1.17 times what is for streams (one H200).
  static constexpr float kMaxCommon = 1.3f;
  // A choice is made anew when its ratio is off by this much from what it was made with.
  static constexpr float kMaxDrift = 0.15f;
  // Shorter plans teach nothing: the end of one is seen when the dispatcher has made the launch
  // that it is at, 6.5 us with cuBLASLt (one H200), and that must not look like a drift. On an H200
  // two 16x2048x1024 on an idle GPU came to be launched apart, 21 us instead of 17.
  static constexpr float kMinUs = 40;
  // Outcomes that a choice which was made anew again and again stays for: times of a few
  // microseconds scatter by more than kMaxDrift, and choosing takes longer than such a plan runs.
  static constexpr uint16_t kMaxPatience = 255;

  // What names a plan in Plan::tag: a signature's hash (low bits 0) and a form.
  static uint64_t TagOf(uint64_t signature, Form form) {
    return signature | (static_cast<uint64_t>(form) + 1);
  }

  // A form that has not been measured has the ratio of the one that has: clocks at the power limit
  // or cold caches slow all of them alike, and a form must not win because it cannot be measured,
  // as streams in chains, whose plans overlap. Beyond kMaxCommon the fault is the measured form's
  // own and another may be tried. 1 if none has been measured.
  FormRatios RatiosOf(uint64_t signature) const;
  // A choice has been made with the ratio of `form` as it is.
  void Chosen(uint64_t signature, Form form);
  // What is predicted for it has changed: its ratios mean nothing any more.
  void Forget(uint64_t signature);
  // Takes in a measurement of a plan that was predicted with the ratio last chosen with. True if
  // the ratio has drifted: the choice should be made anew. The first outcome after a choice is not
  // taken in: what choosing and uploading took is in it.
  bool Learn(uint64_t tag, float predicted_us, float actual_us);

 private:
  // Weight of a new measurement, half of the ratio comes from the last five, and the most that one
  // may change: a few launches that found caches cold or another process on the GPU are no drift.
  static constexpr float kWeight = 0.125f, kMaxStep = 0.03f;
  static constexpr uint64_t kSlots = 2048;
  struct Slot {
    uint64_t tag = 0;  // 0: empty
    float ratio = 1;
    float chosen_with = 1;
    bool measured = false;
    uint16_t outcomes = 0;  // since it was chosen
    uint16_t patience = 0;  // doubles with every choice
  };

  static uint64_t IndexOf(uint64_t tag) { return tag % kSlots; }

  std::array<Slot, kSlots> slots_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_CORRECTIONS_H_
