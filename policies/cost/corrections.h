// What measured times say about predictions: for every signature and arrangement, the ratio of the
// two.
#ifndef CONCERT_POLICIES_COST_CORRECTIONS_H_
#define CONCERT_POLICIES_COST_CORRECTIONS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "policies/cost/plan_tag.h"
#include "policies/seam/form.h"

namespace concert::policies {

// Actual over predicted time of each arrangement for what is being planned.
using Ratios = std::array<float, kArrangementCount>;

// How an arrangement is tried, believed and forgotten. What is chosen is what the model predicts,
// times these ratios, so:
// - An arrangement that was measured has the ratio that was measured: the mean of the first kTrial
//   outcomes without the least and the most, which later ones, by twos, change a little each.
// - One that was not has the ratio that was measured for its family: what is ready makes ever new
//   signatures, and where the model is wrong about a shape, it is in most of them.
// - One that no signature of the family has measured has the ratio of the best that was, less
//   kOptimism: the model may be wrong by as much. So an alternative that might be faster is tried,
//   for kTrial outcomes, and what was measured to be slower is not chosen again.
// - After kReview outcomes of one arrangement the others' ratios lose a little, so that after a
//   while, the longer the slower they were, they are tried anew.
// Fixed memory: a new signature replaces the one in its slot, as a new family does. Not
// thread-safe. ADR 17 has what the constants rest on.
class Corrections {
 public:
  // A ratio is believed within these bounds: beyond them something other than the kernel took the
  // time.
  static constexpr float kMin = 0.5f, kMax = 2.0f;
  // What slows all arrangements alike, as clocks at the power limit and cold caches do. Beyond it
  // the fault is the measured arrangement's own.
  static constexpr float kMaxCommon = 1.3f;
  // And what may make all of them faster. That one takes half of what was predicted says nothing of
  // the others, which would be tried again and again.
  static constexpr float kMinCommon = 0.9f;
  // By how much of its time the model may wrong one arrangement against another.
  static constexpr float kOptimism = 0.15f;
  // Outcomes of a trial; the least and the most are left out, so that what is left of plans that
  // end by twos, one late and one at once, is one of each.
  static constexpr int kTrial = 4;
  // Plans of a trial: the first plan of a choice teaches nothing.
  static constexpr int kTrialPlans = kTrial + 1;
  // Outcomes that are averaged after that.
  static constexpr int kWindow = 2;
  // Plans of an arrangement on trial that told nothing, as beside another class: then it counts as
  // slowed like the others.
  static constexpr int kPatientPlans = 64;
  // Outcomes between two reviews, and what the arrangements that were not chosen lose by one. An
  // arrangement that takes 10 % longer is tried again after 4000 outcomes: kTrialPlans, 0.02 % of
  // the time.
  static constexpr uint16_t kReview = 1000;
  static constexpr float kForget = 0.03f;
  // A choice is made anew when its ratio is off by this much from what it was made with.
  static constexpr float kMaxDrift = 0.1f;
  // Shorter plans teach nothing: the end of one is seen when the dispatcher has made the launch
  // that it is at, and that must not look like a drift.
  static constexpr float kMinUs = 40;
  // Outcomes that a choice which was made anew again and again stays for: times of a few
  // microseconds scatter by more than kMaxDrift, and choosing takes longer than such a plan runs.
  static constexpr uint16_t kMaxPatience = 255;

  Corrections();

  // What is planned: all of it, and what it shares with others that the model is wrong about alike.
  static constexpr uint64_t kNoFamily = 0;
  struct Subject {
    uint64_t signature = 0, family = kNoFamily;
  };
  // Whether something of its family has been measured.
  bool Knows(const Subject& subject) const;
  // 1 for all arrangements if none has been measured.
  Ratios RatiosOf(const Subject& subject) const;
  // A choice has been made with the ratio of `arrangement` as it is.
  void Chosen(const Subject& subject, Arrangement arrangement);
  // What is predicted for it has changed: its ratios mean nothing any more.
  void Forget(const Subject& subject);

  struct Named {
    // For Plan::tag; 0 for the first plan of a choice, whose time has what choosing and uploading
    // took in it.
    uint64_t tag = 0;
    bool choose_anew = false;  // kPatientPlans are over
  };
  // There is one more plan of the last choice.
  Named Planned(uint64_t signature, Arrangement arrangement);

  // Takes in a measurement of a plan, if it is of the signature's last choice. True if the choice
  // should be made anew.
  bool Learn(uint64_t tag, float predicted_us, float actual_us);

 private:
  // Weight of a new window, half of the ratio comes from the last three, and the most that one may
  // change: a few launches that found caches cold or another process on the GPU are no drift.
  static constexpr float kWeight = 0.22f, kMaxStep = 0.05f;
  static constexpr uint64_t kSlots = 2048, kFamilies = 512;
  struct Measured {
    bool measured = false;
    float ratio = 1;
  };
  struct Record : Measured {
    // Of the window that is open.
    uint8_t window_outcomes = 0;
    float window_sum = 0;
    // Of the trial.
    uint8_t tried = 0;
    float sum = 0, least = 0, most = 0;
  };
  struct Family {
    uint64_t family = 0;
    std::array<Measured, kArrangementCount> records;
  };
  struct Slot {
    uint64_t signature = 0, family = 0;
    std::array<Record, kArrangementCount> records;
    // The last choice.
    Arrangement arrangement = Arrangement::kSingle;
    uint32_t choice = 0;  // 0: none was made
    float chosen_with = 1;
    uint16_t plans = 0, outcomes = 0;
    uint16_t patience = 0;  // doubles with every choice
  };

  using Believed = std::array<Measured, kArrangementCount>;

  Slot& SlotOf(uint64_t signature) const;
  Family& FamilyOf(uint64_t family) const;
  Family& FamilyFor(const Slot& slot);
  // Of the signature, else of its family.
  Believed BelievedOf(const Subject& subject) const;
  static float CommonOf(const Believed& believed);
  static bool AnyMeasured(const Believed& believed);
  static bool Try(Record& record, float ratio);
  void Follow(const Slot& slot, int arrangement, float ratio);
  void Review(Slot& slot);

  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Family[]> families_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_CORRECTIONS_H_
