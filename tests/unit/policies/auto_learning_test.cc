// What `auto` makes of times that were measured: by the tuner, and of its own plans.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "policies/auto/auto.h"
#include "policies/auto/budget_choice.h"
#include "policies/cost/corrections.h"
#include "policies/seam/policy.h"
#include "tests/unit/policies/auto_fixture.h"

namespace concert::policies::auto_test {
namespace {

using kernels::GroupWorkList;
using kernels::kWorkListSlots;

TEST_F(AutoTest, AGroupThatTakesTwiceAsLongIsGivenUp) {
  for (uint32_t i = 0; i < 16; ++i) scene_.Of(i, Groupable(1024, 1024, 1024));
  const float predicted_us = Decide().predicted_us;
  ASSERT_EQ(plan_.launches[0].form, Form::kGroup);
  ASSERT_GE(predicted_us, Corrections::kMinUs);
  bool gave_up = false;
  for (int i = 0; i < 200 && !gave_up; ++i) {
    // It takes twice of what was predicted at first.
    Learn(2 * predicted_us / plan_.predicted_us);
    Decide();
    gave_up = plan_.launches[0].form != Form::kGroup || plan_.launches[0].count != 16;
    ASSERT_LE(plan_.predicted_us, plan_.serial_us);
  }
  EXPECT_TRUE(gave_up);
  EXPECT_GT(policy_->stats().corrected, 0u);
}

// The first plan of a choice has no tag in any case.
TEST_F(AutoTest, APlanThatHasCopiesOrProgramsTooTeachesNothingOfItsGemms) {
  const auto tag_beside = [&](const Work& other) {
    Later(1'000).Ready(kSmall).Ready(kSmall).Ready(other);
    Decide();
    EXPECT_EQ(Decide().op_count, 3);
    return plan_.tag;
  };
  EXPECT_NE(tag_beside(kSmall), 0u);
  EXPECT_NE(tag_beside(AllReduce(1 << 20)), 0u) << "which has a plan of its own";
  EXPECT_EQ(tag_beside(Copy(1 << 20)), 0u);
  EXPECT_EQ(tag_beside(ProgramOf(200, 3'000'000'000)), 0u);
}

TEST_F(AutoTest, WhatIsTunedLeavesWhatWasLearnedOfOtherWork) {
  for (uint32_t i = 0; i < 16; ++i) scene_.Of(i, Groupable(1024, 1024, 1024));
  const float predicted_us = Decide().predicted_us;
  for (int i = 0; i < 200; ++i) {
    Learn(1.5f * predicted_us / plan_.predicted_us);
    Decide();
  }
  const float learned_us = plan_.predicted_us;
  const PolicyStats before = policy_->stats();
  ASSERT_GT(before.corrected, 0u);
  ASSERT_GT(learned_us, 1.1f * predicted_us);
  const auto table = [](const Work& work, float us) {
    return std::make_shared<TunedTable>(
        std::vector<TunedRow>{{.key = {.problem = Problem::Of(work)}, .median_us = us}});
  };
  policy_->UseTuned(table(kSmall, 7));
  EXPECT_EQ(Decide().predicted_us, learned_us);
  EXPECT_EQ(policy_->stats().known, before.known + 1) << "nor was it chosen anew";
  EXPECT_EQ(policy_->stats().corrected, before.corrected);
  // Its own times are others now, so that what was learned about the old ones means nothing.
  policy_->UseTuned(table(scene_.ready[0].work, 20));
  Decide();
  EXPECT_EQ(policy_->stats().unseen, before.unseen + 1);
  EXPECT_LT(plan_.predicted_us, learned_us);
}

TEST_F(AutoTest, AChoiceIsMadeAnewByTimesThatWereTunedSince) {
  scene_.Ready(kSmall);
  const float modelled_us = Decide().serial_us;
  policy_->UseTuned(std::make_shared<TunedTable>(
      std::vector<TunedRow>{{.key = {.problem = Problem::Of(kSmall)}, .median_us = 500}}));
  EXPECT_NEAR(Decide().serial_us, 500, 10) << "and what a launch costs";
  policy_->UseTuned(nullptr);
  EXPECT_EQ(Decide().serial_us, modelled_us);
}

// What the model says is fastest takes half as long again; all else takes what was predicted.
TEST_F(AutoTest, AFormThatWasMeasuredToBeSlowerIsNotChosenAgain) {
  for (uint32_t i = 0; i < 4; ++i) scene_.Of(i, Groupable(2048, 2048, 2048));
  Decide();
  const Form slow = plan_.launches[0].form;
  const float first_us = plan_.predicted_us;
  ASSERT_EQ(plan_.op_count, 4);
  int slow_plans = 0, last_slow = 0;
  for (int i = 0; i < 600; ++i) {
    Decide();
    const bool is_slow = plan_.launches[0].form == slow;
    if (is_slow) ++slow_plans, last_slow = i;
    // What a form takes does not depend on what it is predicted to take by now.
    Learn((is_slow ? 1.5f : 1.05f) * first_us / plan_.predicted_us);
  }
  // As one group, as several, and as a group and launches of single ops.
  EXPECT_LE(slow_plans, 3 * Corrections::kTrialPlans);
  EXPECT_LT(last_slow, 50);
}

TEST_F(AutoTest, GroupsInTurnAreNotJudgedByHowOneGroupDid) {
  for (int i = 0; i < 4; ++i) scene_.Running(Groupable(1356, 1064, 3064), kFirstNormalLane);
  for (int i = 0; i < 4; ++i) scene_.Ready(Groupable(1356, 1064, 3064));
  for (int i = 0; i < 4; ++i) scene_.Ready(Groupable(258, 576, 576));
  const float first_us = Decide().predicted_us;
  ASSERT_EQ(plan_.launch_count, 1);
  ASSERT_EQ(plan_.launches[0].form, Form::kGroup);
  const auto groups_in_turn = [&] {
    const auto launches = plan_.launch_span();
    return launches.size() > 1 &&
           std::all_of(launches.begin(), launches.end(),
                       [](const PlannedLaunch& launch) { return launch.form == Form::kGroup; });
  };
  for (int i = 0; i < 100; ++i) {
    Learn((groups_in_turn() ? 1.05f : 1.5f) * first_us / plan_.predicted_us);
    Decide();
  }
  EXPECT_TRUE(groups_in_turn());
}

// Sixteen take some 100 us, four less than kMinUs: nothing would ever correct what they expect.
TEST_F(AutoTest, ShortPlansAreNotChosenByWhatLongOnesTaughtTheFamily) {
  const auto decide = [&](int count) {
    Clear();
    for (int i = 0; i < count; ++i) scene_.Ready(Groupable(1024, 1024, 1024));
    return Decide().predicted_us;
  };
  const float short_us = decide(4);
  ASSERT_EQ(plan_.launches[0].form, Form::kGroup);
  ASSERT_LT(short_us, Corrections::kMinUs);
  const float long_us = decide(16);
  for (int i = 0; i < 30; ++i) {
    Learn(1.5f * long_us / plan_.predicted_us);
    decide(16);
  }
  EXPECT_GT(policy_->stats().corrected, 0u);
  // Unseen, and of the same family.
  EXPECT_LT(decide(3), short_us);
  EXPECT_EQ(plan_.launches[0].form, Form::kGroup);
  EXPECT_EQ(plan_.launch_count, 1);
}

TEST_F(AutoTest, ShortPlansTeachNothing) {
  scene_.Ready(kTiny).Ready(kTiny);
  const float predicted_us = Decide().predicted_us;
  ASSERT_LT(predicted_us, Corrections::kMinUs);
  for (int i = 0; i < 200; ++i) {
    Learn(2);
    Decide();
    EXPECT_EQ(plan_.predicted_us, predicted_us);
  }
  EXPECT_EQ(policy_->stats().corrected, 0u);
}

TEST_F(AutoTest, MeasuredTimesReplaceTheModel) {
  const Problem problem = Problem::Of(kSmall);
  const auto row = [&](Form form, Degree degree, float us) {
    return TunedRow{.key = {.problem = problem, .degree = degree, .form = form}, .median_us = us};
  };
  tuned_ = std::make_shared<TunedTable>(std::vector<TunedRow>{
      row(Form::kSingle, Degree::kSolo, 5), row(Form::kGroup, Degree::kSolo, 50),
      row(Form::kGroup, Degree::kFour, 50), row(Form::kGroup, Degree::kTwo, 50),
      row(Form::kStreams, Degree::kFour, 50)});
  for (uint32_t i = 0; i < 4; ++i) scene_.Of(i, kSmall);
  Decide();
  EXPECT_EQ(plan_.launch_count, 4);
  EXPECT_EQ(plan_.launches[0].form, Form::kSingle);
  EXPECT_FLOAT_EQ(plan_.predicted_us, 4 * (5 + 1));
  EXPECT_EQ(policy_->stats().tuned, 4u);
  EXPECT_EQ(policy_->stats().modelled, 0u);
}

TEST_F(AutoTest, StreamsThatWereMeasuredFastestNameTheirDegree) {
  const auto row = [&](Form form, Degree degree, float us) {
    return TunedRow{.key = {.problem = Problem::Of(kSmall), .degree = degree, .form = form},
                    .median_us = us};
  };
  std::vector<TunedRow> rows = {row(Form::kStreams, Degree::kFour, 7),
                                row(Form::kSingle, Degree::kSolo, 60)};
  for (const Degree degree : {Degree::kSolo, Degree::kTwo, Degree::kFour}) {
    rows.push_back(row(Form::kGroup, degree, 50));
  }
  tuned_ = std::make_shared<TunedTable>(rows);
  for (uint32_t i = 0; i < 4; ++i) scene_.Of(i, kSmall);
  Decide();
  ASSERT_EQ(plan_.launch_count, 4);
  for (const PlannedLaunch& launch : plan_.launch_span()) {
    EXPECT_EQ(launch.form, Form::kStreams);
    EXPECT_EQ(launch.degree, Degree::kFour);
  }
}

// The others would only be one after the other if there were no more lanes to come.
TEST_F(AutoTest, StreamsTakeWhatThereAreLanesForOfMore) {
  std::vector<TunedRow> rows;
  const auto add = [&](Form form, Degree degree, float us) {
    rows.push_back(
        {.key = {.problem = Problem::Of(kSmall), .degree = degree, .form = form}, .median_us = us});
  };
  add(Form::kSingle, Degree::kSolo, 60);
  add(Form::kStreams, Degree::kEight, 7);
  for (const Degree degree :
       {Degree::kSolo, Degree::kTwo, Degree::kFour, Degree::kEight, Degree::kMany}) {
    add(Form::kGroup, degree, 50);
  }
  tuned_ = std::make_shared<TunedTable>(rows);
  for (uint32_t i = 0; i < 20; ++i) scene_.Ready(kSmall);
  Decide();
  ASSERT_EQ(plan_.launch_count, kNormalLaneCount);
  EXPECT_EQ(plan_.op_count, kNormalLaneCount);
  uint32_t lanes = 0;
  for (const PlannedLaunch& launch : plan_.launch_span()) {
    EXPECT_EQ(launch.form, Form::kStreams);
    EXPECT_EQ(launch.degree, Degree::kEight);
    lanes |= 1u << launch.lane;
  }
  EXPECT_EQ(lanes, (1u << kNormalLaneCount) - 1);
}

TEST_F(AutoTest, CountsWhatItKnew) {
  scene_.Ready(kSmall).Ready(kSmall);
  Decide();
  Decide();
  EXPECT_EQ(policy_->stats().unseen, 1u);
  EXPECT_EQ(policy_->stats().known, 1u);
  EXPECT_EQ(policy_->stats().modelled, 4u);
}

// Work lists are their compiler's: a remembered plan asks for its own again once they are gone.
TEST_F(AutoTest, RememberedWorkListsAreThoseOfThePlan) {
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kWorkListSlots; ++i) {
      Later(10 * kActiveNs).Ready(Groupable(16, 128 + 8 * (i % 300), 512)).Ready(kTiny);
      Decide();
      for (const PlannedLaunch& launch : plan_.launch_span()) {
        if (launch.form != Form::kGroup) continue;
        ASSERT_EQ(GroupWorkList::Of(launch.work_list)->problem_count, launch.count);
        ASSERT_NE(GroupWorkList::Of(launch.work_list)->id, 0u);
      }
    }
  }
}

}  // namespace
}  // namespace concert::policies::auto_test
