// What policies are taught of plans that have ended: of which, and how long those took.
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/sched/group_fixture.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// OneGroup, and library kernels side by side, by turns of `turn` plans.
class ByTurns final : public OneGroup {
 public:
  ByTurns(std::vector<policies::Outcome>* learned, int turn) : OneGroup(learned), turn_(turn) {}
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    OneGroup::Decide(snapshot, plan);
    if (plans_++ / turn_ % 2 == 1) plan.launches[0].form = Form::kStreams;
  }

 private:
  const int turn_;
  int plans_ = 0;
};

// OneGroup, but has a name only for plans from the third on.
class NamesLate final : public OneGroup {
 public:
  using OneGroup::OneGroup;
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    OneGroup::Decide(snapshot, plan);
    if (plan.tag <= 2) plan.tag = 0;
  }
};

TEST_F(GroupTest, LearnsFromAPlanThatRanAlone) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000), SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  now_ += 20'000;
  Finish(a, 1);
  now_ += 5'000;
  Step();
  EXPECT_THAT(learned_, IsEmpty());
  Finish(b, 1);
  Step();
  ASSERT_EQ(learned_.size(), 1u);
  EXPECT_EQ(learned_[0].tag, 1u);
  EXPECT_FLOAT_EQ(learned_[0].actual_us, 25);
  // Launched on an idle GPU.
  const policies::DeviceModel device;
  EXPECT_FLOAT_EQ(learned_[0].predicted_us, 20 + device.launch_us + 2 * device.launch_op_us);
}

// The end of the first is seen late, since the second was submitted meanwhile.
TEST_F(GroupTest, TheFirstPlanOnAnIdleGpuTeachesNothingIfItIsFollowed) {
  EXPECT_THAT(LearnedAfterEach({90, 21}), ElementsAre(0, 1));
  EXPECT_EQ(learned_[0].tag, 2u);
  EXPECT_FLOAT_EQ(learned_[0].actual_us, 21);  // from the end of the first
  EXPECT_FLOAT_EQ(learned_[0].predicted_us, 20);
}

// In a steady state the next plan is launched before the one that runs has ended, and its first ops
// may end before the last of that one.
TEST_F(GroupTest, LearnsFromPlansThatOverlapByTheTimeBetweenTheirEnds) {
  const QueueId a = AddQueue(1), b = AddQueue(2), c = AddQueue(3), d = AddQueue(4), e = AddQueue(5);
  SubmitGemm(e, 0x1000, 0x2000, 0x7000);
  Step();
  SubmitGemm(a, 0x1000, 0x2000, 0x3000), SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  SubmitGemm(c, 0x1000, 0x2000, 0x5000), SubmitGemm(d, 0x1000, 0x2000, 0x6000);
  for (const QueueId queue : {e, a, c, b, d}) {
    now_ += 10'000;
    Finish(queue, 1);
    Step();
  }
  ASSERT_EQ(learned_.size(), 2u);
  EXPECT_EQ(learned_[0].tag, 2u);
  EXPECT_FLOAT_EQ(learned_[0].actual_us, 30);
  EXPECT_EQ(learned_[1].tag, 3u);
  EXPECT_FLOAT_EQ(learned_[1].actual_us, 10);
  EXPECT_FLOAT_EQ(learned_[1].predicted_us, 20);
}

// On several lanes a plan may end before an older one. What each took cannot be said, but together
// they took the time until the last end.
TEST_F(GroupTest, LearnsFromPlansThatOvertakeOneAnotherByWhatTheyTakeTogether) {
  const QueueId a = AddQueue(1), b = AddQueue(2), c = AddQueue(3), first = AddQueue(4);
  for (const auto& [queue, d] : {std::pair(first, 0x6000), {a, 0x3000}, {b, 0x4000}, {c, 0x5000}}) {
    SubmitGemm(queue, 0x1000, 0x2000, d);
    Step();
    if (queue == a) Finish(first, 1);
  }
  for (const QueueId queue : {b, a}) {
    EXPECT_THAT(learned_, IsEmpty());
    now_ += 10'000;
    Finish(queue, 1);
    Step();
  }
  ASSERT_EQ(learned_.size(), 2u);
  EXPECT_THAT((std::array{learned_[0].tag, learned_[1].tag}), UnorderedElementsAre(2u, 3u));
  EXPECT_NEAR(learned_[0].actual_us + learned_[1].actual_us, 20, 1e-3);
  EXPECT_NEAR(learned_[0].actual_us / learned_[0].predicted_us,
              learned_[1].actual_us / learned_[1].predicted_us, 1e-4);
  now_ += 15'000;
  Finish(c, 1);
  Step();
  ASSERT_EQ(learned_.size(), 3u);
  EXPECT_EQ(learned_[2].tag, 4u);
  EXPECT_FLOAT_EQ(learned_[2].actual_us, 15);
}

TEST_F(GroupTest, PlansWhoseEndsAreSeenTogetherShareTheirTime) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  now_ += 44'000;
  Finish(b, 1), Finish(a, 1);
  Step();
  ASSERT_EQ(learned_.size(), 2u);
  EXPECT_NEAR(learned_[0].actual_us + learned_[1].actual_us, 44, 1e-3);
  EXPECT_NEAR(learned_[0].actual_us / learned_[0].predicted_us,
              learned_[1].actual_us / learned_[1].predicted_us, 1e-4);
}

// What starts beside the end of a plan of another form takes its time.
TEST_F(GroupTest, PlansShareTheirTimeUpToOneThatIsFollowedByItsForm) {
  Use(std::make_unique<ByTurns>(&learned_, 2));
  EXPECT_THAT(LearnedAfterEach({22, 150, 22, 22, 22, 22}), ElementsAre(0, 0, 2, 2, 4, 5));
  for (const int first : {0, 2}) {
    const policies::Outcome &one = learned_[first], &next = learned_[first + 1];
    EXPECT_NEAR(one.actual_us + next.actual_us, first == 0 ? 172 : 44, 1e-3);
    EXPECT_NEAR(one.actual_us / one.predicted_us, next.actual_us / next.predicted_us, 1e-4);
  }
}

TEST_F(GroupTest, PlansThatNeverFollowTheirFormTeachAfterEight) {
  Use(std::make_unique<ByTurns>(&learned_, 1));
  EXPECT_THAT(LearnedAfterEach(std::vector<int>(10, 20)),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 8, 9));
}

class OvertakingTest : public GroupTest {
 protected:
  OvertakingTest() : GroupTest({.depth = 4, .backlog_ns = 0}) {}
};

// Plans 2, 4, 1, 6, 3, 8, 5, ... end one after the other: there always is an older one that runs.
TEST_F(OvertakingTest, PlansThatOvertakeOneAnotherForEverTeachAfterSixteen) {
  std::vector<QueueId> queues;
  const auto submit = [&] {
    queues.push_back(AddQueue(static_cast<uint32_t>(queues.size() + 1)));
    SubmitGemm(queues.back(), 0x1000, 0x2000, 0x3000 + 0x1000 * queues.size());
    Step();
  };
  const auto finish = [&](int plan) {
    now_ += 30'000;
    Finish(queues[plan - 1], 1);
    Step();
    submit();
  };
  for (int i = 0; i < 4; ++i) submit();
  finish(2);
  for (int odd = 1; learned_.empty() && odd < 40; odd += 2) {
    finish(odd + 3);
    if (learned_.empty()) finish(odd);
  }
  ASSERT_EQ(learned_.size(), 16u);
  for (const policies::Outcome& outcome : learned_) EXPECT_FLOAT_EQ(outcome.actual_us, 30);
  finish(17);
  EXPECT_EQ(learned_.size(), 16u) << "the next share what is new";
}

TEST_F(GroupTest, PlansWithoutANameTeachNothing) {
  Use(std::make_unique<NamesLate>(&learned_));
  EXPECT_THAT(LearnedAfterEach({500, 70, 20}), ElementsAre(0, 0, 1));
  EXPECT_FLOAT_EQ(learned_[0].actual_us, 20);
}

TEST_F(GroupTest, WhatAFailedPlanOvertookTeachesNothing) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  const OpId failed = SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  scheduler_.LaunchFailed(failed, {CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_ERROR, {}});
  for (const QueueId queue : {b, a}) {
    now_ += 10'000;
    Finish(queue, 1);
    Step();
  }
  EXPECT_THAT(learned_, IsEmpty());
}

TEST_F(GroupTest, DoesNotLearnFromAPlanBesideOneOfAnotherClass) {
  const QueueId a = AddQueue(1), low = AddQueue(2, Priority::kLow);
  SubmitGemm(low, 0x1000, 0x2000, 0x4000);
  Step();
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  now_ += 10'000;
  Finish(low, 1);  // the older one ends first, but the other has run beside it
  Step();
  now_ += 10'000;
  Finish(a, 1);
  Step();
  EXPECT_THAT(learned_, IsEmpty());
}

TEST_F(GroupTest, DoesNotLearnFromWhatFailedOrRanBesideOthers) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId failed = SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  scheduler_.LaunchFailed(failed, {CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_ERROR, {}});
  now_ += 20'000;
  Finish(a, 1);
  Step();
  EXPECT_THAT(learned_, IsEmpty());
  // A collective beside it.
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  std::unique_ptr<policies::Policy> alone = std::make_unique<EachAlone>();
  scheduler_.SetPolicy(alone);
  const OpId part = Submit(b, {}, RunsOn::kLinks);
  Step();
  scheduler_.SetPolicy(alone);
  scheduler_.PartLaunched(part, {}, now_);
  now_ += 20'000;
  Finish(a, 2);
  Step();
  EXPECT_THAT(learned_, IsEmpty());
}

TEST_F(GroupTest, ANewPolicyLearnsNothingFromThePlansOfTheOld) {
  const QueueId a = AddQueue(1);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  std::vector<policies::Outcome> of_the_new;
  UseGroups(&of_the_new);
  now_ += 20'000;
  Finish(a, 1);
  Step();
  EXPECT_THAT(of_the_new, IsEmpty());
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  now_ += 20'000;
  Finish(a, 2);
  Step();
  EXPECT_EQ(of_the_new.size(), 1u);
  UseGroups(&learned_);  // the test's list outlives the policy
}

}  // namespace
}  // namespace concert::daemon
