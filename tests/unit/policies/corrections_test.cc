#include "policies/corrections.h"

#include <gtest/gtest.h>

namespace concert::policies {
namespace {

constexpr uint64_t kSignature = 0x1230;

// Chooses `form` and measures it until its ratio has settled. Returns all ratios.
FormRatios Settle(Corrections& corrections, Form form, float actual_over_predicted) {
  corrections.Chosen(kSignature, form);
  const float ratio = corrections.RatiosOf(kSignature)[static_cast<int>(form)];
  const uint64_t tag = Corrections::TagOf(kSignature, form);
  for (int i = 0; i < 100; ++i) corrections.Learn(tag, 100 * ratio, 100 * actual_over_predicted);
  return corrections.RatiosOf(kSignature);
}

TEST(CorrectionsTest, WhatWasNeverMeasuredIsTakenAsPredicted) {
  EXPECT_EQ(Corrections().RatiosOf(kSignature), (FormRatios{1, 1, 1}));
}

TEST(CorrectionsTest, FormsThatWereNotMeasuredAreAsSlowAsTheOneThatWas) {
  Corrections corrections;
  const FormRatios ratios = Settle(corrections, Form::kGroup, 1.3f);
  EXPECT_NEAR(ratios[static_cast<int>(Form::kGroup)], 1.3, 0.01);
  EXPECT_NEAR(ratios[static_cast<int>(Form::kSingle)], 1.3, 0.01);
  EXPECT_EQ(corrections.RatiosOf(kSignature + 4), (FormRatios{1, 1, 1}));
  // Chosen, but not measured yet.
  corrections.Chosen(kSignature, Form::kStreams);
  EXPECT_EQ(corrections.RatiosOf(kSignature), ratios);
  // What takes as long as was predicted with that ratio confirms it.
  const uint64_t streams = Corrections::TagOf(kSignature, Form::kStreams);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(corrections.Learn(streams, 130, 130));
  EXPECT_NEAR(corrections.RatiosOf(kSignature)[static_cast<int>(Form::kStreams)], 1.3, 0.01);
}

TEST(CorrectionsTest, ApproachesTheRatioOfEachFormThatIsMeasured) {
  Corrections corrections;
  Settle(corrections, Form::kGroup, 1.2f);
  const FormRatios ratios = Settle(corrections, Form::kStreams, 0.9f);
  EXPECT_NEAR(ratios[static_cast<int>(Form::kGroup)], 1.2, 0.01);
  EXPECT_NEAR(ratios[static_cast<int>(Form::kStreams)], 0.9, 0.01);
}

TEST(CorrectionsTest, OnlyTheMeasuredFormIsBlamedForMuch) {
  Corrections corrections;
  const FormRatios ratios = Settle(corrections, Form::kGroup, 1.8f);
  EXPECT_NEAR(ratios[static_cast<int>(Form::kGroup)], 1.8, 0.01);
  EXPECT_EQ(ratios[static_cast<int>(Form::kStreams)], Corrections::kMaxCommon);
}

TEST(CorrectionsTest, DriftsOnceAndIsAtRestWhenChosenWithTheNewRatio) {
  Corrections corrections;
  corrections.Chosen(kSignature, Form::kGroup);
  const uint64_t tag = Corrections::TagOf(kSignature, Form::kGroup);
  EXPECT_FALSE(corrections.Learn(tag, 100, 130));  // one measurement is no drift
  int drifted_after = 1;
  while (!corrections.Learn(tag, 100, 130)) ASSERT_LT(++drifted_after, 20);
  // From now on predictions carry the ratio that they were chosen with.
  corrections.Chosen(kSignature, Form::kGroup);
  const float ratio = corrections.RatiosOf(kSignature)[static_cast<int>(Form::kGroup)];
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(corrections.Learn(tag, 100 * ratio, 130));
}

TEST(CorrectionsTest, AFewOutliersAreNoDrift) {
  Corrections corrections;
  corrections.Chosen(kSignature, Form::kGroup);
  const uint64_t tag = Corrections::TagOf(kSignature, Form::kGroup);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(corrections.Learn(tag, 100, 1000));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(corrections.Learn(tag, 100, 100));
  EXPECT_NEAR(corrections.RatiosOf(kSignature)[static_cast<int>(Form::kGroup)], 1, 0.02);
}

TEST(CorrectionsTest, WhatChoosingTookIsNotTheFormsTime) {
  Corrections corrections;
  const uint64_t tag = Corrections::TagOf(kSignature, Form::kGroup);
  for (int i = 0; i < 100; ++i) {
    corrections.Chosen(kSignature, Form::kGroup);
    EXPECT_FALSE(corrections.Learn(tag, 100, 200));
  }
  EXPECT_EQ(corrections.RatiosOf(kSignature), (FormRatios{1, 1, 1}));
}

TEST(CorrectionsTest, ScatteredTimesAreSeldomAReasonToChooseAgain) {
  Corrections corrections;
  corrections.Chosen(kSignature, Form::kGroup);
  const uint64_t tag = Corrections::TagOf(kSignature, Form::kGroup);
  int drifts = 0;
  float chosen_with = 1;
  for (int i = 0; i < 4000; ++i) {
    const float actual_us = i / 10 % 2 == 0 ? 70 : 140;  // now faster, now slower
    if (!corrections.Learn(tag, 100 * chosen_with, actual_us)) continue;
    corrections.Chosen(kSignature, Form::kGroup);
    chosen_with = corrections.RatiosOf(kSignature)[static_cast<int>(Form::kGroup)];
    ++drifts;
  }
  EXPECT_GT(drifts, 0);
  EXPECT_LT(drifts, 4000 / Corrections::kMaxPatience + 10);
}

TEST(CorrectionsTest, IsBoundedAndIgnoresNonsense) {
  Corrections corrections;
  corrections.Chosen(kSignature, Form::kSingle);
  const uint64_t tag = Corrections::TagOf(kSignature, Form::kSingle);
  for (const float actual_us : {0.0f, -1.0f}) EXPECT_FALSE(corrections.Learn(tag, 100, actual_us));
  EXPECT_FALSE(corrections.Learn(tag, 0, 100));
  EXPECT_FALSE(corrections.Learn(0, 100, 200));
  EXPECT_EQ(corrections.RatiosOf(kSignature), (FormRatios{1, 1, 1}));
  for (int i = 0; i < 100; ++i) corrections.Learn(tag, 1, 1e30f);
  EXPECT_LE(corrections.RatiosOf(kSignature)[0], Corrections::kMax);
  for (int i = 0; i < 100; ++i) corrections.Learn(tag, 1e30f, 1);
  EXPECT_GE(corrections.RatiosOf(kSignature)[0], Corrections::kMin);
}

TEST(CorrectionsTest, PlansChosenTooLongAgoTeachNothing) {
  Corrections corrections;
  EXPECT_FALSE(corrections.Learn(Corrections::TagOf(kSignature, Form::kGroup), 1, 2));
  EXPECT_EQ(corrections.RatiosOf(kSignature), (FormRatios{1, 1, 1}));
}

}  // namespace
}  // namespace concert::policies
