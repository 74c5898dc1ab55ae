#include "policies/cost/corrections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "tests/support/seed.h"

namespace concert::policies {
namespace {

constexpr uint64_t kSignature = 0x12300;
constexpr Corrections::Subject kSubject = {.signature = kSignature, .family = 0x777};
constexpr int kSingle = static_cast<int>(Arrangement::kSingle),
              kStreams = static_cast<int>(Arrangement::kStreams),
              kGroup = static_cast<int>(Arrangement::kGroup);
constexpr Ratios kUncorrected = {1, 1, 1, 1, 1};
static_assert(kUncorrected.back() == 1);

// Chooses `form`. Returns what its second plan is named; the first has the time of choosing in it.
uint64_t Choose(Corrections& corrections, Arrangement form) {
  corrections.Chosen(kSubject, form);
  EXPECT_EQ(corrections.Planned(kSignature, form).tag, 0u);
  return corrections.Planned(kSignature, form).tag;
}

// Chooses `form` and measures it until its trial is over. Returns all ratios.
Ratios Try(Corrections& corrections, Arrangement form, float actual_over_predicted) {
  const uint64_t tag = Choose(corrections, form);
  const float ratio = corrections.RatiosOf(kSubject)[static_cast<int>(form)];
  for (int i = 2; i < Corrections::kTrialPlans; ++i) {
    EXPECT_FALSE(corrections.Learn(tag, 100 * ratio, 100 * actual_over_predicted)) << i;
  }
  EXPECT_TRUE(corrections.Learn(tag, 100 * ratio, 100 * actual_over_predicted));
  return corrections.RatiosOf(kSubject);
}

TEST(PlanTagTest, NamesOfAllFormsDifferAndKeepTheSignature) {
  std::set<uint64_t> tags;
  for (int form = 0; form < kArrangementCount; ++form) {
    for (const uint32_t choice : {0u, 1u, 31u}) {
      const uint64_t tag = PlanTag::Of(kSignature, choice, static_cast<Arrangement>(form));
      EXPECT_NE(tag, 0u);
      EXPECT_EQ(PlanTag::SignatureOf(tag), kSignature);
      EXPECT_EQ(PlanTag::ArrangementOf(tag), static_cast<uint32_t>(form));
      EXPECT_EQ(PlanTag::ChoiceOf(tag), choice);
      tags.insert(tag);
    }
  }
  EXPECT_EQ(tags.size(), 3u * kArrangementCount);
  EXPECT_GE(PlanTag::ArrangementOf(0), static_cast<uint32_t>(kArrangementCount));
  // A form more than there are today would be one of its own, too.
  const auto fourth = static_cast<Arrangement>(kArrangementCount);
  EXPECT_EQ(PlanTag::ArrangementOf(PlanTag::Of(kSignature, 1, fourth)),
            static_cast<uint32_t>(kArrangementCount));
  EXPECT_EQ(PlanTag::SignatureOf(PlanTag::Of(kSignature, 1, fourth)), kSignature);
}

TEST(CorrectionsTest, WhatWasNeverMeasuredIsTakenAsPredicted) {
  EXPECT_EQ(Corrections().RatiosOf(kSubject), kUncorrected);
}

TEST(CorrectionsTest, FormsThatWereNotMeasuredMayBeFasterThanTheOneThatWas) {
  Corrections corrections;
  const Ratios ratios = Try(corrections, Arrangement::kGroup, 1.2f);
  EXPECT_NEAR(ratios[kGroup], 1.2, 0.001);
  EXPECT_NEAR(ratios[kSingle], 1.2 * (1 - Corrections::kOptimism), 0.001);
  EXPECT_EQ(ratios[kSingle], ratios[kStreams]);
  EXPECT_EQ(corrections.RatiosOf({kSignature + 0x100, kSubject.family + 1}), kUncorrected);
  // Chosen, but not measured yet.
  corrections.Chosen(kSubject, Arrangement::kStreams);
  EXPECT_EQ(corrections.RatiosOf(kSubject), ratios);
}

TEST(CorrectionsTest, OnlyTheMeasuredFormIsBlamedForMuch) {
  Corrections corrections;
  const Ratios ratios = Try(corrections, Arrangement::kGroup, 1.8f);
  EXPECT_NEAR(ratios[kGroup], 1.8, 0.001);
  EXPECT_NEAR(ratios[kStreams], Corrections::kMaxCommon * (1 - Corrections::kOptimism), 0.001);
}

TEST(CorrectionsTest, AFormThatIsMuchFasterThanPredictedSaysLittleOfOthers) {
  Corrections corrections;
  const Ratios ratios = Try(corrections, Arrangement::kStreams, 0.5f);
  EXPECT_NEAR(ratios[kStreams], 0.5, 0.001);
  EXPECT_NEAR(ratios[kGroup], Corrections::kMinCommon * (1 - Corrections::kOptimism), 0.001);
}

TEST(CorrectionsTest, EachFormHasWhatWasMeasuredOfIt) {
  Corrections corrections;
  Try(corrections, Arrangement::kGroup, 1.2f);
  const Ratios ratios = Try(corrections, Arrangement::kStreams, 0.9f);
  EXPECT_NEAR(ratios[kGroup], 1.2, 0.001);
  EXPECT_NEAR(ratios[kStreams], 0.9, 0.001);
  EXPECT_NEAR(ratios[kSingle], 0.9 * (1 - Corrections::kOptimism), 0.001);
}

TEST(CorrectionsTest, TheTrialForgivesOneOutlierEachWay) {
  Corrections corrections;
  const uint64_t tag = Choose(corrections, Arrangement::kGroup);
  for (const float actual_us : {110.0f, 900.0f, 60.0f, 110.0f}) {
    corrections.Learn(tag, 100, actual_us);
  }
  EXPECT_NEAR(corrections.RatiosOf(kSubject)[kGroup], 1.1, 0.001);
}

// Plans on several lanes end together with the one after them, or nearly so.
TEST(CorrectionsTest, WhatPlansTakeByTurnsCountsByItsAverage) {
  Corrections corrections;
  const uint64_t tag = Choose(corrections, Arrangement::kStreams);
  for (int i = 0; i < 40; ++i) corrections.Learn(tag, 100, i % 2 == 0 ? 210 : 2);
  EXPECT_NEAR(corrections.RatiosOf(kSubject)[kStreams], 1.06, 0.001);
}

// What is ready makes ever new signatures of the same shapes.
TEST(CorrectionsTest, WhatOneSignatureMeasuredIsExpectedOfItsFamily) {
  Corrections corrections;
  Try(corrections, Arrangement::kGroup, 1.2f);
  Try(corrections, Arrangement::kStreams, 0.9f);
  const Corrections::Subject relative{kSignature + 0x100, kSubject.family};
  EXPECT_EQ(corrections.RatiosOf(relative), corrections.RatiosOf(kSubject));
  // Until it has been measured itself.
  corrections.Chosen(relative, Arrangement::kStreams);
  corrections.Planned(relative.signature, Arrangement::kStreams);
  const uint64_t tag = corrections.Planned(relative.signature, Arrangement::kStreams).tag;
  for (int i = 2; i <= Corrections::kTrialPlans; ++i) corrections.Learn(tag, 90, 110);
  EXPECT_NEAR(corrections.RatiosOf(relative)[kStreams], 1.1, 0.001);
  EXPECT_NEAR(corrections.RatiosOf(relative)[kGroup], 1.2, 0.001);
  EXPECT_NEAR(corrections.RatiosOf(kSubject)[kStreams], 0.9, 0.001);
  // Where times were tuned anew, all that earlier ones taught is gone.
  corrections.Forget(kSubject);
  EXPECT_EQ(corrections.RatiosOf(kSubject), kUncorrected);
  EXPECT_NEAR(corrections.RatiosOf(relative)[kStreams], 1.1, 0.001);
}

TEST(CorrectionsTest, WhatHasNoFamilyNeitherTeachesNorLearnsFromOthers) {
  Corrections corrections;
  const Corrections::Subject alone{.signature = kSignature + 0x100};
  EXPECT_FALSE(corrections.Knows(kSubject));
  Try(corrections, Arrangement::kGroup, 1.2f);
  EXPECT_TRUE(corrections.Knows(kSubject));
  EXPECT_FALSE(corrections.Knows(alone));
  EXPECT_EQ(corrections.RatiosOf(alone), kUncorrected);
  corrections.Chosen(alone, Arrangement::kStreams);
  corrections.Planned(alone.signature, Arrangement::kStreams);
  const uint64_t tag = corrections.Planned(alone.signature, Arrangement::kStreams).tag;
  for (int i = 0; i < 2 * Corrections::kReview; ++i) corrections.Learn(tag, 100, 110);
  EXPECT_NEAR(corrections.RatiosOf(alone)[kStreams], 1.1, 0.001);
  EXPECT_EQ(corrections.RatiosOf({.signature = kSignature + 0x200}), kUncorrected);
  EXPECT_NEAR(corrections.RatiosOf(kSubject)[kGroup], 1.2, 0.001);
}

TEST(CorrectionsTest, WhatDriftsIsChosenAnewAFewTimesAndIsThenAtRest) {
  Corrections corrections;
  Try(corrections, Arrangement::kGroup, 1);
  uint64_t tag = Choose(corrections, Arrangement::kGroup);
  EXPECT_FALSE(corrections.Learn(tag, 100, 130));  // one measurement is no drift
  // From each choice on predictions carry the ratio that it was made with.
  float ratio = 1;
  int choices = 0, last = 0;
  for (int i = 0; i < 300; ++i) {
    if (!corrections.Learn(tag, 100 * ratio, 130)) continue;
    tag = Choose(corrections, Arrangement::kGroup);
    ratio = corrections.RatiosOf(kSubject)[kGroup];
    ++choices, last = i;
  }
  EXPECT_GT(choices, 0);
  EXPECT_LE(choices, 4);
  EXPECT_LT(last, 50);
  EXPECT_NEAR(ratio, 1.3, 1.3 * Corrections::kMaxDrift);
}

TEST(CorrectionsTest, AFewOutliersAreNoDrift) {
  Corrections corrections;
  Try(corrections, Arrangement::kGroup, 1);
  const uint64_t tag = Choose(corrections, Arrangement::kGroup);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(corrections.Learn(tag, 100, 1000));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(corrections.Learn(tag, 100, 100));
  EXPECT_NEAR(corrections.RatiosOf(kSubject)[kGroup], 1, 0.02);
}

TEST(CorrectionsTest, WhatChoosingTookIsNotTheFormsTime) {
  Corrections corrections;
  for (int i = 0; i < 100; ++i) {
    corrections.Chosen(kSubject, Arrangement::kGroup);
    const uint64_t tag = corrections.Planned(kSignature, Arrangement::kGroup).tag;
    EXPECT_FALSE(corrections.Learn(tag, 100, 200));
  }
  EXPECT_EQ(corrections.RatiosOf(kSubject), kUncorrected);
}

TEST(CorrectionsTest, OutcomesOfAnEarlierChoiceAreLeftOut) {
  Corrections corrections;
  const uint64_t earlier = Choose(corrections, Arrangement::kGroup);
  Try(corrections, Arrangement::kGroup, 1.2f);
  EXPECT_NE(Choose(corrections, Arrangement::kGroup), earlier);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(corrections.Learn(earlier, 100, 200));
  EXPECT_NEAR(corrections.RatiosOf(kSubject)[kGroup], 1.2, 0.001);
}

TEST(CorrectionsTest, ARatioThatMakesPlansTooShortToTeachCanBeUnlearned) {
  Corrections corrections;
  EXPECT_NEAR(Try(corrections, Arrangement::kGroup, 0.5f)[kGroup], 0.5, 0.001);
  const uint64_t tag = Choose(corrections, Arrangement::kGroup);
  bool choose_anew = false;
  for (int i = 0; i < 50 && !choose_anew; ++i) {
    choose_anew = corrections.Learn(tag, 0.5f * 60, 60);
  }
  EXPECT_TRUE(choose_anew);
  EXPECT_GT(corrections.RatiosOf(kSubject)[kGroup], 0.6);
}

TEST(CorrectionsTest, ScatteredTimesAreSeldomAReasonToChooseAgain) {
  Corrections corrections;
  corrections.Chosen(kSubject, Arrangement::kGroup);
  int drifts = 0;
  float chosen_with = 1;
  for (int i = 0; i < 4000; ++i) {
    const float actual_us = i / 10 % 2 == 0 ? 70 : 140;  // now faster, now slower
    const uint64_t tag = corrections.Planned(kSignature, Arrangement::kGroup).tag;
    if (!corrections.Learn(tag, 100 * chosen_with, actual_us)) continue;
    corrections.Chosen(kSubject, Arrangement::kGroup);
    chosen_with = corrections.RatiosOf(kSubject)[kGroup];
    ++drifts;
  }
  EXPECT_GT(drifts, 0);
  EXPECT_LT(drifts, 4000 / Corrections::kMaxPatience + 12);
}

TEST(CorrectionsTest, AFormOnTrialThatNeverTellsAnythingCountsAsTheOthers) {
  Corrections corrections;
  Try(corrections, Arrangement::kGroup, 1.2f);
  corrections.Chosen(kSubject, Arrangement::kStreams);
  int plans = 1;
  while (!corrections.Planned(kSignature, Arrangement::kStreams).choose_anew)
    ASSERT_LT(++plans, 100);
  EXPECT_EQ(plans, Corrections::kPatientPlans);
  EXPECT_NEAR(corrections.RatiosOf(kSubject)[kStreams], 1.2, 0.001);
  corrections.Chosen(kSubject, Arrangement::kStreams);
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(corrections.Planned(kSignature, Arrangement::kStreams).choose_anew);
  }
}

TEST(CorrectionsTest, IsBoundedAndIgnoresNonsense) {
  Corrections corrections;
  const uint64_t tag = Choose(corrections, Arrangement::kSingle);
  for (const float actual_us : {0.0f, -1.0f}) EXPECT_FALSE(corrections.Learn(tag, 100, actual_us));
  EXPECT_FALSE(corrections.Learn(tag, 0, 100));
  EXPECT_FALSE(corrections.Learn(0, 100, 200));
  EXPECT_FALSE(corrections.Learn(~uint64_t{0}, 100, 200));
  EXPECT_EQ(corrections.RatiosOf(kSubject), kUncorrected);
  for (int i = 0; i < 100; ++i) corrections.Learn(tag, 50, 1e30f);
  EXPECT_LE(corrections.RatiosOf(kSubject)[kSingle], Corrections::kMax);
  for (int i = 0; i < 100; ++i) corrections.Learn(tag, 1e30f, 1);
  EXPECT_GE(corrections.RatiosOf(kSubject)[kSingle], Corrections::kMin);
}

TEST(CorrectionsTest, PlansChosenTooLongAgoTeachNothing) {
  Corrections corrections;
  EXPECT_FALSE(corrections.Learn(PlanTag::Of(kSignature, 1, Arrangement::kGroup), 100, 200));
  EXPECT_EQ(corrections.RatiosOf(kSubject), kUncorrected);
}

// What a policy does with the ratios: the form with the least time, predicted times ratio.
class Chooser {
 public:
  Chooser(Ratios predicted_us, Ratios actual_us)
      : predicted_us_(predicted_us), actual_us_(actual_us) {
    Choose();
  }

  // Of one plan.
  void Run(float noise) {
    const auto form = static_cast<size_t>(form_);
    ++plans_[form];
    const Corrections::Named named = corrections_.Planned(kSignature, form_);
    const bool drifted =
        corrections_.Learn(named.tag, predicted_us_[form] * ratio_, actual_us_[form] * noise);
    if (drifted || named.choose_anew) Choose();
  }
  int plans(Arrangement form) const { return plans_[static_cast<size_t>(form)]; }

 private:
  void Choose() {
    const Ratios ratios = corrections_.RatiosOf(kSubject);
    size_t best = 0;
    for (size_t form = 1; form < ratios.size(); ++form) {
      if (predicted_us_[form] * ratios[form] < predicted_us_[best] * ratios[best]) best = form;
    }
    form_ = static_cast<Arrangement>(best);
    ratio_ = ratios[best];
    corrections_.Chosen(kSubject, form_);
  }

  const Ratios predicted_us_, actual_us_;
  Corrections corrections_;
  Arrangement form_ = Arrangement::kSingle;
  float ratio_ = 1;
  std::array<int, kArrangementCount> plans_{};
};

TEST(CorrectionsTest, WhatWasMeasuredToBeSlowerIsNotChosenAgain) {
  std::mt19937 random(test::Seed());
  // In the order of Arrangement: predicted, then actual. A group is predicted best and takes half
  // as long again; and all are close, and all slower than predicted.
  const std::pair<Ratios, Ratios> cases[] = {
      {{210, 230, 200, 225, 220}, {215, 240, 300, 290, 280}},
      {{205, 400, 200, 400, 400}, {240, 500, 260, 500, 500}},
      {{220, 210, 200, 215, 215}, {200, 230, 225, 235, 240}}};
  for (const auto& [predicted_us, actual_us] : cases) {
    Chooser chooser(predicted_us, actual_us);
    constexpr int kPlans = 900;  // no review
    for (int i = 0; i < kPlans; ++i)
      chooser.Run(0.98f + 0.04f * static_cast<float>(random() % 100) / 100);
    // Every other form was tried once at most.
    EXPECT_GE(chooser.plans(Arrangement::kSingle),
              kPlans - (kArrangementCount - 1) * Corrections::kTrialPlans);
  }
}

TEST(CorrectionsTest, ATriedFormIsForgottenAndTriedAgainAtASmallCost) {
  Chooser chooser({210, 500, 200, 500, 500}, {200, 500, 220, 500, 500});
  constexpr int kPlans = 40'000;
  for (int i = 0; i < kPlans; ++i) chooser.Run(1);
  EXPECT_GT(chooser.plans(Arrangement::kGroup), 2 * Corrections::kTrialPlans);
  EXPECT_LT(chooser.plans(Arrangement::kGroup), kPlans / 100);
}

// Four signatures of one family. The model errs by arrangement, by up to a quarter, and clocks
// change after every 30 plans. `loss`: of time to arrangements that were not the best.
class Family {
 public:
  explicit Family(unsigned seed) : random_(seed) {
    Ratios bias;
    for (float& error : bias) error = Uniform(0.85f, 1.25f);
    for (int i = 0; i < kSignatures; ++i) {
      for (int form = 0; form < kArrangementCount; ++form) {
        predicted_us_[i][form] = 100.0f * static_cast<float>(i + 1) * Uniform(1, 1.25f);
        actual_us_[i][form] = predicted_us_[i][form] * bias[form] * Uniform(0.97f, 1.03f);
      }
      Choose(i);
    }
  }

  double LossOf(int rounds) {
    constexpr int kPlans = 30;
    double loss = 0;
    for (int round = 0; round < rounds; ++round) {
      const float clock = Uniform(0.97f, 1.2f);
      for (int plan = 0; plan < kPlans; ++plan) {
        const bool steady = plan >= kSignatures - 1 && random_() % 5 != 0;
        loss += Run(steady ? kSignatures - 1 : static_cast<int>(random_() % kSignatures), clock);
      }
    }
    return loss / (rounds * kPlans);
  }

 private:
  static constexpr int kSignatures = 4;

  static Corrections::Subject SubjectOf(int i) {
    return {.signature = 0x100 * static_cast<uint64_t>(i + 1), .family = kSubject.family};
  }
  float Uniform(float from, float to) {
    return from + (to - from) * static_cast<float>(random_() % 10000) / 10000;
  }
  double Run(int i, float clock) {
    const auto form = static_cast<size_t>(form_[i]);
    const Corrections::Named named = corrections_.Planned(SubjectOf(i).signature, form_[i]);
    const bool drifted = corrections_.Learn(named.tag, predicted_us_[i][form] * ratio_[i],
                                            actual_us_[i][form] * clock * Uniform(0.98f, 1.02f));
    const float best_us = *std::min_element(actual_us_[i].begin(), actual_us_[i].end());
    const double loss = actual_us_[i][form] / best_us - 1;
    if (drifted || named.choose_anew) Choose(i);
    return loss;
  }
  void Choose(int i) {
    const Ratios ratios = corrections_.RatiosOf(SubjectOf(i));
    size_t best = 0;
    for (size_t form = 1; form < ratios.size(); ++form) {
      if (predicted_us_[i][form] * ratios[form] < predicted_us_[i][best] * ratios[best]) {
        best = form;
      }
    }
    form_[i] = static_cast<Arrangement>(best);
    ratio_[i] = ratios[best];
    corrections_.Chosen(SubjectOf(i), form_[i]);
  }

  std::mt19937 random_;
  Corrections corrections_;
  std::array<Ratios, kSignatures> predicted_us_, actual_us_;
  std::array<Arrangement, kSignatures> form_;
  std::array<float, kSignatures> ratio_;
};

TEST(CorrectionsTest, LittleIsLostToLearningThoughClocksChange) {
  constexpr int kFamilies = 200;
  double early = 0, late = 0;
  for (unsigned i = 0; i < kFamilies; ++i) {
    Family family(test::Seed() + i);
    early += family.LossOf(6) / kFamilies;
    late += family.LossOf(6) / kFamilies;
  }
  // 3.7 % and 0.3 % when this was written; with a family for each signature 5.2 % and 3.8 %.
  EXPECT_LT(early, 0.045);
  EXPECT_LT(late, 0.01);
}

}  // namespace
}  // namespace concert::policies
