#include "policies/cost/corrections.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace concert::policies {
namespace {

constexpr uint64_t kSignature = 0x12300;
constexpr int kSingle = static_cast<int>(Arrangement::kSingle),
              kStreams = static_cast<int>(Arrangement::kStreams),
              kGroup = static_cast<int>(Arrangement::kGroup);
constexpr Ratios kUncorrected = {1, 1, 1, 1, 1};
static_assert(kUncorrected.back() == 1);

// Chooses `form` and measures it until its trial is over. Returns all ratios.
Ratios Try(Corrections& corrections, Arrangement form, float actual_over_predicted) {
  corrections.Chosen(kSignature, form);
  const float ratio = corrections.RatiosOf(kSignature)[static_cast<int>(form)];
  const uint64_t tag = corrections.Planned(kSignature, form).tag;
  for (int i = 1; i < Corrections::kTrialPlans; ++i) {
    EXPECT_FALSE(corrections.Learn(tag, 100 * ratio, 100 * actual_over_predicted)) << i;
  }
  EXPECT_TRUE(corrections.Learn(tag, 100 * ratio, 100 * actual_over_predicted));
  return corrections.RatiosOf(kSignature);
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
  EXPECT_EQ(Corrections().RatiosOf(kSignature), kUncorrected);
}

TEST(CorrectionsTest, FormsThatWereNotMeasuredMayBeFasterThanTheOneThatWas) {
  Corrections corrections;
  const Ratios ratios = Try(corrections, Arrangement::kGroup, 1.2f);
  EXPECT_NEAR(ratios[kGroup], 1.2, 0.001);
  EXPECT_NEAR(ratios[kSingle], 1.2 * (1 - Corrections::kOptimism), 0.001);
  EXPECT_EQ(ratios[kSingle], ratios[kStreams]);
  EXPECT_EQ(corrections.RatiosOf(kSignature + 0x100), kUncorrected);
  // Chosen, but not measured yet.
  corrections.Chosen(kSignature, Arrangement::kStreams);
  EXPECT_EQ(corrections.RatiosOf(kSignature), ratios);
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
  corrections.Chosen(kSignature, Arrangement::kGroup);
  const uint64_t tag = corrections.Planned(kSignature, Arrangement::kGroup).tag;
  for (const float actual_us : {500.0f, 110.0f, 110.0f, 900.0f, 110.0f, 60.0f, 110.0f}) {
    corrections.Learn(tag, 100, actual_us);
  }
  EXPECT_NEAR(corrections.RatiosOf(kSignature)[kGroup], 1.1, 0.001);
}

// Plans on several lanes end together with the one after them, or nearly so.
TEST(CorrectionsTest, WhatPlansTakeByTurnsCountsByItsAverage) {
  Corrections corrections;
  corrections.Chosen(kSignature, Arrangement::kStreams);
  const uint64_t tag = corrections.Planned(kSignature, Arrangement::kStreams).tag;
  for (int i = 0; i < 40; ++i) corrections.Learn(tag, 100, i % 2 == 0 ? 210 : 2);
  EXPECT_NEAR(corrections.RatiosOf(kSignature)[kStreams], 1.06, 0.001);
}

TEST(CorrectionsTest, WhatDriftsIsChosenAnewOnceAndIsThenAtRest) {
  Corrections corrections;
  Try(corrections, Arrangement::kGroup, 1);
  corrections.Chosen(kSignature, Arrangement::kGroup);
  uint64_t tag = corrections.Planned(kSignature, Arrangement::kGroup).tag;
  EXPECT_FALSE(corrections.Learn(tag, 100, 130));  // one measurement is no drift
  int drifted_after = 1;
  while (!corrections.Learn(tag, 100, 130)) ASSERT_LT(++drifted_after, 20);
  // From now on predictions carry the ratio that they were chosen with.
  corrections.Chosen(kSignature, Arrangement::kGroup);
  tag = corrections.Planned(kSignature, Arrangement::kGroup).tag;
  const float ratio = corrections.RatiosOf(kSignature)[kGroup];
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(corrections.Learn(tag, 100 * ratio, 130));
}

TEST(CorrectionsTest, AFewOutliersAreNoDrift) {
  Corrections corrections;
  Try(corrections, Arrangement::kGroup, 1);
  corrections.Chosen(kSignature, Arrangement::kGroup);
  const uint64_t tag = corrections.Planned(kSignature, Arrangement::kGroup).tag;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(corrections.Learn(tag, 100, 1000));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(corrections.Learn(tag, 100, 100));
  EXPECT_NEAR(corrections.RatiosOf(kSignature)[kGroup], 1, 0.02);
}

TEST(CorrectionsTest, WhatChoosingTookIsNotTheFormsTime) {
  Corrections corrections;
  for (int i = 0; i < 100; ++i) {
    corrections.Chosen(kSignature, Arrangement::kGroup);
    const uint64_t tag = corrections.Planned(kSignature, Arrangement::kGroup).tag;
    EXPECT_FALSE(corrections.Learn(tag, 100, 200));
  }
  EXPECT_EQ(corrections.RatiosOf(kSignature), kUncorrected);
}

TEST(CorrectionsTest, OutcomesOfAnEarlierChoiceAreLeftOut) {
  Corrections corrections;
  corrections.Chosen(kSignature, Arrangement::kGroup);
  const uint64_t earlier = corrections.Planned(kSignature, Arrangement::kGroup).tag;
  Try(corrections, Arrangement::kGroup, 1.2f);
  corrections.Chosen(kSignature, Arrangement::kGroup);
  EXPECT_NE(corrections.Planned(kSignature, Arrangement::kGroup).tag, earlier);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(corrections.Learn(earlier, 100, 200));
  EXPECT_NEAR(corrections.RatiosOf(kSignature)[kGroup], 1.2, 0.001);
}

TEST(CorrectionsTest, ScatteredTimesAreSeldomAReasonToChooseAgain) {
  Corrections corrections;
  corrections.Chosen(kSignature, Arrangement::kGroup);
  int drifts = 0;
  float chosen_with = 1;
  for (int i = 0; i < 4000; ++i) {
    const float actual_us = i / 10 % 2 == 0 ? 70 : 140;  // now faster, now slower
    const uint64_t tag = corrections.Planned(kSignature, Arrangement::kGroup).tag;
    if (!corrections.Learn(tag, 100 * chosen_with, actual_us)) continue;
    corrections.Chosen(kSignature, Arrangement::kGroup);
    chosen_with = corrections.RatiosOf(kSignature)[kGroup];
    ++drifts;
  }
  EXPECT_GT(drifts, 0);
  EXPECT_LT(drifts, 4000 / Corrections::kMaxPatience + 12);
}

TEST(CorrectionsTest, AFormOnTrialThatNeverTellsAnythingCountsAsTheOthers) {
  Corrections corrections;
  Try(corrections, Arrangement::kGroup, 1.2f);
  corrections.Chosen(kSignature, Arrangement::kStreams);
  int plans = 1;
  while (!corrections.Planned(kSignature, Arrangement::kStreams).choose_anew)
    ASSERT_LT(++plans, 100);
  EXPECT_EQ(plans, Corrections::kPatientPlans);
  EXPECT_NEAR(corrections.RatiosOf(kSignature)[kStreams], 1.2, 0.001);
  corrections.Chosen(kSignature, Arrangement::kStreams);
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(corrections.Planned(kSignature, Arrangement::kStreams).choose_anew);
  }
}

TEST(CorrectionsTest, IsBoundedAndIgnoresNonsense) {
  Corrections corrections;
  corrections.Chosen(kSignature, Arrangement::kSingle);
  const uint64_t tag = corrections.Planned(kSignature, Arrangement::kSingle).tag;
  for (const float actual_us : {0.0f, -1.0f}) EXPECT_FALSE(corrections.Learn(tag, 100, actual_us));
  EXPECT_FALSE(corrections.Learn(tag, 0, 100));
  EXPECT_FALSE(corrections.Learn(0, 100, 200));
  EXPECT_FALSE(corrections.Learn(~uint64_t{0}, 100, 200));
  EXPECT_EQ(corrections.RatiosOf(kSignature), kUncorrected);
  for (int i = 0; i < 100; ++i) corrections.Learn(tag, 50, 1e30f);
  EXPECT_LE(corrections.RatiosOf(kSignature)[kSingle], Corrections::kMax);
  for (int i = 0; i < 100; ++i) corrections.Learn(tag, 1e30f, 1);
  EXPECT_GE(corrections.RatiosOf(kSignature)[kSingle], Corrections::kMin);
}

TEST(CorrectionsTest, PlansChosenTooLongAgoTeachNothing) {
  Corrections corrections;
  EXPECT_FALSE(corrections.Learn(PlanTag::Of(kSignature, 1, Arrangement::kGroup), 100, 200));
  EXPECT_EQ(corrections.RatiosOf(kSignature), kUncorrected);
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
    const Ratios ratios = corrections_.RatiosOf(kSignature);
    size_t best = 0;
    for (size_t form = 1; form < ratios.size(); ++form) {
      if (predicted_us_[form] * ratios[form] < predicted_us_[best] * ratios[best]) best = form;
    }
    form_ = static_cast<Arrangement>(best);
    ratio_ = ratios[best];
    corrections_.Chosen(kSignature, form_);
  }

  const Ratios predicted_us_, actual_us_;
  Corrections corrections_;
  Arrangement form_ = Arrangement::kSingle;
  float ratio_ = 1;
  std::array<int, kArrangementCount> plans_{};
};

TEST(CorrectionsTest, WhatWasMeasuredToBeSlowerIsNotChosenAgain) {
  std::mt19937 random(14);
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

}  // namespace
}  // namespace concert::policies
