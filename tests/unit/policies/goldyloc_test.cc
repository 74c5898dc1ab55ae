// The degree predictor against scikit-learn, and what the policy makes of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "policies/baselines/degree_model.h"
#include "policies/models/degree_h200.h"
#include "policies/seam/policy.h"
#include "tests/unit/policies/degree_fixture.h"
#include "tests/unit/policies/works.h"

namespace concert::policies::goldyloc_test {
namespace {

// The degrees that the model of policies/models predicts for them when many are queued. A model
// trained anew may need other sizes here.
const Work kSmall = Gemm(512, 768, 768);     // 8
const Work kTiny = Gemm(16, 16, 4096);       // 8, and more than 2 when few are queued
const Work kMedium = Gemm(1024, 4096, 512);  // 4
const Work kLarge = Gemm(8192, 8192, 8192);  // 1

Plan Decide(const Scene& scene) {
  Plan plan;
  FindPolicy("goldyloc")->make(InputsOf(scene.device))->Decide(scene.Get(), plan);
  return plan;
}

Scene ReadyTimes(int count, const Work& work, Priority priority = Priority::kNormal) {
  Scene scene;
  for (int i = 0; i < count; ++i) scene.Ready(work, priority);
  return scene;
}

std::set<int> LanesOf(const Plan& plan) {
  std::set<int> lanes;
  for (const PlannedLaunch& launch : plan.launch_span()) lanes.insert(launch.lane);
  return lanes;
}

void ExpectDegree(const Plan& plan, int launches, Form form, Degree degree) {
  ASSERT_EQ(plan.launch_count, launches);
  for (const PlannedLaunch& launch : plan.launch_span()) {
    EXPECT_EQ(launch.count, 1);
    EXPECT_EQ(launch.form, form);
    EXPECT_EQ(launch.degree, degree);
  }
}

DegreeScores Softmax(DegreeScores scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (double& score : scores) score /= sum;
  return scores;
}

TEST(DegreeModelTest, PredictsWhatScikitLearnPredicts) {
  for (const DegreeCase& expected : kDegreeCases) {
    const Problem& problem = expected.problem;
    SCOPED_TRACE(testing::Message() << problem.m << "x" << problem.n << "x" << problem.k << "x"
                                    << problem.batch << " at depth " << expected.depth);
    const DegreeScores probabilities = Softmax(
        ScoresOf(kDegreeModelH200, DegreeFeaturesOf(problem, kDegreeCaseSmCount, expected.depth)));
    for (size_t c = 0; c < probabilities.size(); ++c) {
      EXPECT_NEAR(probabilities[c], expected.probabilities[c], 1e-9);
    }
    const int depth = std::min(expected.depth, kMaxDegree);
    EXPECT_EQ(PredictDegrees(kDegreeModelH200, problem, kDegreeCaseSmCount)[depth - 1],
              expected.degree);
  }
}

TEST(DegreeModelTest, EveryDegreeIsPredictedForSomeCase) {
  std::set<int> degrees;
  for (const DegreeCase& expected : kDegreeCases) degrees.insert(expected.degree);
  EXPECT_EQ(degrees, (std::set<int>{1, 2, 4, 8}));
}

TEST(DegreeModelTest, ExtremeSizesHaveFiniteScores) {
  constexpr uint32_t kMost = UINT32_MAX;
  for (const Problem& problem : {Problem{0, 0, 0, 0}, Problem{kMost, kMost, kMost, kMost}}) {
    for (const double score : ScoresOf(kDegreeModelH200, DegreeFeaturesOf(problem, 0, 1000))) {
      EXPECT_TRUE(std::isfinite(score));
    }
  }
}

TEST(GoldylocTest, RunsSmallGemmsByEightWithTheirVariants) {
  const Plan plan = Decide(ReadyTimes(20, kSmall));
  ExpectDegree(plan, 8, Form::kStreams, Degree::kEight);
  EXPECT_EQ(LanesOf(plan).size(), 8u);
  EXPECT_EQ(plan.reason, Reason::kTogetherFaster);
}

TEST(GoldylocTest, RunsLargeGemmsAloneWithTheirSoloVariants) {
  const Plan plan = Decide(ReadyTimes(8, kLarge));
  ExpectDegree(plan, 1, Form::kSingle, Degree::kSolo);
  EXPECT_EQ(plan.reason, Reason::kTogetherNotFaster);
}

TEST(GoldylocTest, ADegreeBetweenTakesThatManyAndQueuesTheRestBehindThem) {
  Scene scene = ReadyTimes(8, kMedium);
  const Plan first = Decide(scene);
  ExpectDegree(first, 4, Form::kStreams, Degree::kFour);

  Scene second = ReadyTimes(4, kMedium);
  for (const int lane : LanesOf(first)) second.Running(kMedium, static_cast<Lane>(lane));
  const Plan rest = Decide(second);
  ExpectDegree(rest, 4, Form::kStreams, Degree::kFour);
  EXPECT_EQ(LanesOf(rest), LanesOf(first));
}

TEST(GoldylocTest, FewerThanTheDegreeGetTheVariantOfTheirDegree) {
  ExpectDegree(Decide(ReadyTimes(3, kTiny)), 3, Form::kStreams, Degree::kFour);
  const Plan one = Decide(ReadyTimes(1, kSmall));
  ExpectDegree(one, 1, Form::kSingle, Degree::kSolo);
  EXPECT_EQ(one.reason, Reason::kOnlyOneReady);
}

TEST(GoldylocTest, OfDifferentShapesEachDegreeIsAnUpperLimit) {
  const Plan small_first =
      Decide(ReadyTimes(2, kSmall).Ready(kLarge).Ready(kSmall).Ready(kSmall).Ready(kSmall));
  ExpectDegree(small_first, 2, Form::kStreams, Degree::kTwo);
  const Plan large_first = Decide(Scene().Ready(kLarge).Ready(kSmall).Ready(kSmall).Ready(kSmall));
  ExpectDegree(large_first, 1, Form::kSingle, Degree::kSolo);
}

TEST(GoldylocTest, JoinsWhatRunsWithinItsDegree) {
  const Plan small = Decide(Scene().Running(kSmall, 3).Ready(kSmall));
  ExpectDegree(small, 1, Form::kStreams, Degree::kTwo);
  EXPECT_NE(small.launches[0].lane, 3);
  const Plan large = Decide(Scene().Running(kLarge, 3).Ready(kLarge));
  ExpectDegree(large, 1, Form::kSingle, Degree::kSolo);
  EXPECT_EQ(large.launches[0].lane, 3);
}

TEST(GoldylocTest, ALargeGemmWaitsForWhatEndsLast) {
  Scene scene;
  scene.Running(kSmall, 1).Running(kSmall, 2).Running(kSmall, 3).Ready(kLarge);
  scene.running[1].expected_end += 5'000;
  const Plan plan = Decide(scene);
  ASSERT_EQ(plan.launch_count, 1);
  EXPECT_EQ(plan.launches[0].lane, 2);
}

TEST(GoldylocTest, ChainsStayOnTheirLanesAndCountOnce) {
  Scene scene;
  for (Lane lane = 0; lane < 4; ++lane) {
    scene.Running(kMedium, lane).Ready(kMedium, Priority::kNormal, lane);
  }
  const Plan plan = Decide(scene);
  ExpectDegree(plan, 4, Form::kStreams, Degree::kFour);
  for (const PlannedLaunch& launch : plan.launch_span()) {
    EXPECT_EQ(launch.lane, scene.ready[plan.OpsOf(launch)[0]].after);
  }
}

TEST(GoldylocTest, HigherClassGoesAloneOnHighLanes) {
  const Plan plan = Decide(ReadyTimes(6, kSmall, Priority::kHigh).Ready(kSmall));
  ASSERT_EQ(plan.launch_count, kHighLaneCount);
  for (const PlannedLaunch& launch : plan.launch_span()) EXPECT_TRUE(IsHighPriority(launch.lane));
  EXPECT_EQ(Decide(Scene().Ready(kSmall, Priority::kHigh).Ready(kSmall)).reason,
            Reason::kPriorityFirst);
}

TEST(GoldylocTest, SendsCollectivesAndCopiesAtOnceAndFirst) {
  const Plan plan =
      Decide(Scene().Ready(kLarge).Ready(kLarge).Ready(AllReduce(1 << 20)).Ready(Copy(1 << 20)));
  ASSERT_EQ(plan.launch_count, 3);
  EXPECT_EQ(plan.launches[0].lane, kHighCollectiveLane);
  EXPECT_EQ(plan.OpsOf(plan.launches[1])[0], 3);
  EXPECT_EQ(plan.OpsOf(plan.launches[2])[0], 0);
  EXPECT_EQ(Decide(Scene().Ready(AllReduce(1 << 20))).reason, Reason::kCollective);
}

}  // namespace
}  // namespace concert::policies::goldyloc_test
