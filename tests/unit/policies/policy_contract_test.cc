// What every policy owes the scheduler, on random snapshots. A program of its own because it counts
// every allocation (tests/support/heap_use.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "policies/auto/auto.h"
#include "policies/cost/cost_model.h"
#include "policies/seam/classes.h"
#include "policies/seam/policy.h"
#include "tests/support/heap_use.h"
#include "tests/support/seed.h"
#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

using kernels::GroupWorkList;
using kernels::kGroupRepackBytes;

constexpr int kRounds = 2000;
constexpr int kCollectiveSms = 16;
// A policy's caches are tens of megabytes: making one takes 0.3 s under ThreadSanitizer.
constexpr int kRoundsPerFreshPolicy = 100;

class RandomScenes {
 public:
  explicit RandomScenes(uint32_t seed) : random_(seed) {}

  // Of a device with or without the group kernel. Time passes from scene to scene by more than
  // policies remember.
  Scene Next(bool group_kernel) {
    Scene scene;
    scene.device.group_kernel = group_kernel;
    scene.device.collective_sms = kCollectiveSms;
    scene.now = now_ += 1'000'000'000;
    uint32_t session = 0;
    const int ready = Pick({0, 1, 2, 3, 8, 17, 64, 100, kMaxReady});
    for (Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kLow}) {
      for (int i = 0; i < ready / 3 + (priority == Priority::kNormal ? ready % 3 : 0); ++i) {
        const Lane after = Below(2) == 0 ? kNoLane : static_cast<Lane>(Below(kLaneCount));
        scene.Ready(RandomWork(), priority, after);
        session += Below(3) == 0 ? 1 : 0;
        scene.ready.back().session = session;
        if (Below(20) == 0) scene.ready.back().deadline = scene.now + 1'000 * Below(300);
        if (Below(20) == 0) scene.ready.back().ready_at -= 10'000'000;
        for (int behind = Below(6) - 3; behind > 0; --behind)
          scene.Then(RandomWork(), Below(3) == 0);
      }
    }
    const int running = Pick({0, 0, 1, 2, 5, 20});
    for (int i = 0; i < running; ++i) {
      const bool collective = Below(5) == 0;
      const Lane lane = static_cast<Lane>(collective ? kCollectiveLane + Below(2) : Below(12));
      const Priority priority =
          IsHighPriority(lane) ? Priority::kHigh : static_cast<Priority>(-Below(2));
      scene.Running(collective ? AllReduce(1 << 20) : RandomWork(), lane, priority);
    }
    for (int i = Below(8) - 5; i > 0; --i) {
      scene.Waiting(AllReduce(1 << Below(28), 8), static_cast<uint16_t>(Below(33)),
                    static_cast<uint8_t>(1 + Below(7)), scene.now - Below(2'000'000));
    }
    return scene;
  }

 private:
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  int Pick(std::initializer_list<int> values) { return values.begin()[Below(values.size())]; }

  Work RandomWork() {
    switch (Below(10)) {
      case 9:
        return ProgramOf(2 + Below(200), 1ull << (10 + Below(22)));
      case 0:
        return AllReduce(1 << Below(28));
      case 1:
        return Copy(1 << Below(28));
      case 2:
        return Work{};
      case 3:
        return Rows(static_cast<uint32_t>(Pick({1, 64, 5000})), 1u << Below(14));
      default:
        return RandomGemm();
    }
  }

  Work RandomGemm() {
    Work work = Gemm(Pick({1, 16, 64, 333, 4096}), Pick({16, 768, 4096}), Pick({64, 479, 8192}));
    work.dtype = static_cast<Dtype>(Pick({1, 1, 1, 2, 3}));
    bool groupable = work.dtype != Dtype::kFp32 && Below(8) != 0;
    if (groupable && (work.k == 479 || Below(8) == 0)) {
      const uint32_t repack_bytes = Unaligned(work.m, work.n, work.k).repack_bytes;
      groupable = repack_bytes <= kGroupRepackBytes;
      if (groupable) work.repack_bytes = repack_bytes;
    }
    if (groupable) work.carrier = Carrier::kGroup;
    return work;
  }

  std::mt19937 random_;
  Time now_ = 0;
};

PolicyInputs InputsFor(bool group_kernel) {
  PolicyInputs inputs;
  inputs.device.group_kernel = group_kernel;
  inputs.device.collective_sms = kCollectiveSms;
  inputs.make_compiler = kernels::MakeGroupCompiler;
  return inputs;
}

struct Param {
  PolicyInfo info;
  bool group_kernel;
};

class PolicyContractTest : public testing::TestWithParam<Param> {
 protected:
  PolicyContractTest() : policy_(Make()) {}
  static std::unique_ptr<Policy> Make() {
    return GetParam().info.make(InputsFor(GetParam().group_kernel));
  }

  std::unique_ptr<Policy> policy_;
};

// The row kernel needs no work list.
void CheckRows(const Scene& scene, const Plan& plan, const PlannedLaunch& launch) {
  ASSERT_EQ(launch.work_list, nullptr);
  ASSERT_LE(launch.count, 32);
  for (const uint16_t index : plan.OpsOf(launch))
    ASSERT_TRUE(scene.ready[index].work.carrier == Carrier::kRows);
}

void CheckGemms(const Scene& scene, const Plan& plan, const PlannedLaunch& launch) {
  const ReadyOp& first = scene.ready[plan.OpsOf(launch)[0]];
  ASSERT_NE(launch.work_list, nullptr);
  ASSERT_EQ(GroupWorkList::Of(launch.work_list)->problem_count, launch.count);
  ASSERT_LE(GroupWorkList::Of(launch.work_list)->blocks,
            launch.sm_budget == 0 ? scene.device.sm_count : launch.sm_budget);
  uint64_t repack_bytes = 0;
  for (const uint16_t index : plan.OpsOf(launch)) {
    const ReadyOp& op = scene.ready[index];
    ASSERT_TRUE(op.work.groupable());
    repack_bytes += op.work.repack_bytes;
    ASSERT_LE(repack_bytes, kGroupRepackBytes);
    ASSERT_EQ(op.work.dtype, first.work.dtype);
  }
}

void CheckGroup(const Scene& scene, const Plan& plan, const PlannedLaunch& launch) {
  const ReadyOp& first = scene.ready[plan.OpsOf(launch)[0]];
  ASSERT_TRUE(scene.device.group_kernel);
  if (first.work.carrier == Carrier::kRows) {
    ASSERT_NO_FATAL_FAILURE(CheckRows(scene, plan, launch));
  } else {
    ASSERT_NO_FATAL_FAILURE(CheckGemms(scene, plan, launch));
  }
  for (const uint16_t index : plan.OpsOf(launch)) {
    ASSERT_EQ(scene.ready[index].priority, first.priority);
  }
  // Group lanes are few, and a lane has launches of one class.
  ASSERT_GE(GroupLaneIndex(launch.lane), 0);
  ASSERT_EQ(IsHighPriority(launch.lane), first.priority == Priority::kHigh);
}

void CheckLaunch(const Scene& scene, const Plan& plan, const PlannedLaunch& launch) {
  ASSERT_GE(launch.count, 1);
  ASSERT_LT(launch.lane, kLaneCount);
  ASSERT_GT(launch.predicted_us, 0);
  ASSERT_LE(launch.sm_budget, scene.device.sm_count);
  ASSERT_TRUE(launch.count == 1 || launch.form == Form::kGroup);
  if (launch.form == Form::kGroup) {
    ASSERT_NO_FATAL_FAILURE(CheckGroup(scene, plan, launch));
  }
  for (const uint16_t index : plan.OpsOf(launch)) {
    ASSERT_LT(index, scene.ready.size());
    ASSERT_EQ(IsCollectiveLane(launch.lane), scene.ready[index].work.runs_on == RunsOn::kLinks);
  }
}

void CheckPlan(const Scene& scene, const Plan& plan) {
  std::array<bool, kMaxReady> seen{};
  int covered = 0, predicted = 0;
  for (const PlannedLaunch& launch : plan.launch_span()) {
    ASSERT_EQ(launch.first, covered);
    covered += launch.count;
    ASSERT_NO_FATAL_FAILURE(CheckLaunch(scene, plan, launch));
    for (const uint16_t index : plan.OpsOf(launch)) {
      ASSERT_FALSE(seen[index]) << "op " << index << " twice";
      seen[index] = true;
    }
    predicted += IsCollectiveLane(launch.lane) ? 0 : launch.count;
  }
  ASSERT_EQ(covered, plan.op_count);
  if (scene.ready.empty()) {
    ASSERT_EQ(plan.reason, Reason::kNothingReady);
  } else {
    ASSERT_NE(plan.reason, Reason::kNothingReady);
  }
  if (plan.empty()) {
    const bool part_waits = std::any_of(
        scene.waiting.begin(), scene.waiting.end(),
        [&](const WaitingCollective& part) { return scene.now - part.since < 1'000'000; });
    ASSERT_TRUE(scene.ready.empty() || !scene.running.empty() || part_waits)
        << "idle with work ready";
  } else {
    // The plan's times are those of its compute: collectives get plans of their own.
    ASSERT_EQ(plan.predicted_us > 0, predicted > 0);
    ASSERT_EQ(plan.serial_us > 0, predicted > 0);
  }
}

// Tags aside: they are for the policy's own books and change nothing of what is launched.
bool SamePlan(const Plan& a, const Plan& b) {
  if (a.op_count != b.op_count || a.launch_count != b.launch_count || a.reason != b.reason ||
      a.predicted_us != b.predicted_us || a.serial_us != b.serial_us) {
    return false;
  }
  for (int i = 0; i < a.op_count; ++i) {
    if (a.ops[i] != b.ops[i]) return false;
  }
  for (int i = 0; i < a.launch_count; ++i) {
    const PlannedLaunch &x = a.launches[i], &y = b.launches[i];
    if (x.first != y.first || x.count != y.count || x.form != y.form || x.lane != y.lane ||
        x.sm_budget != y.sm_budget || x.predicted_us != y.predicted_us) {
      return false;
    }
  }
  return true;
}

// Which classes have had group launches on each lane, as bits.
void NoteGroupLanes(const Scene& scene, const Plan& plan, std::array<int, kLaneCount>& classes) {
  for (const PlannedLaunch& launch : plan.launch_span()) {
    if (launch.form != Form::kGroup) continue;
    const Priority priority = scene.ready[plan.OpsOf(launch)[0]].priority;
    classes[launch.lane] |= 1 << ClassOf(priority);
  }
}

TEST_P(PolicyContractTest, PlansAreValidAndNeedNoAllocation) {
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  RandomScenes scenes(test::Seed());
  Plan plan;
  std::array<int, kLaneCount> group_classes{};
  for (int round = 0; round < kRounds; ++round) {
    const Scene scene = scenes.Next(GetParam().group_kernel);
    const Snapshot snapshot = scene.Get();
    const int64_t before = test::Allocations();
    policy_->Reclaim();
    policy_->Decide(snapshot, plan);
    ASSERT_EQ(test::Allocations(), before) << "round " << round;
    ASSERT_NO_FATAL_FAILURE(CheckPlan(scene, plan)) << "round " << round;
    NoteGroupLanes(scene, plan, group_classes);
  }
  for (const int classes : group_classes) {
    EXPECT_LE(std::popcount(static_cast<unsigned>(classes)), 1) << "classes share a lane";
  }
}

// A policy that has seen 2000 snapshots (full caches) plans as one that has seen none. What `auto`
// knows of the past, classes that are active or held back, is out of the way: scenes are far apart
// and all is ready since now.
TEST_P(PolicyContractTest, PlansDependOnTheSnapshotOnly) {
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  RandomScenes scenes(test::Seed() + 1);
  Plan warm, again, fresh;
  for (int round = 0; round < kRounds; ++round) {
    Scene scene = scenes.Next(GetParam().group_kernel);
    for (ReadyOp& op : scene.ready) op.ready_at = scene.now;
    policy_->Reclaim();
    policy_->Decide(scene.Get(), warm);
    policy_->Decide(scene.Get(), again);
    ASSERT_TRUE(SamePlan(warm, again)) << "round " << round;
    if (round % kRoundsPerFreshPolicy != 0) continue;
    Make()->Decide(scene.Get(), fresh);
    ASSERT_TRUE(SamePlan(warm, fresh)) << "round " << round;
  }
}

TEST_P(PolicyContractTest, EverythingGoesOutInTheEnd) {
  RandomScenes scenes(test::Seed() + 2);
  Plan plan;
  for (int round = 0; round < 50; ++round) {
    Scene scene = scenes.Next(GetParam().group_kernel);
    scene.waiting.clear();
    scene.running.clear();  // each plan has finished before the next decision
    while (!scene.ready.empty()) {
      policy_->Reclaim();
      policy_->Decide(scene.Get(), plan);
      ASSERT_FALSE(plan.empty());
      std::array<bool, kMaxReady> done{};
      for (int i = 0; i < plan.op_count; ++i) done[plan.ops[i]] = true;
      size_t kept = 0;
      for (size_t i = 0; i < scene.ready.size(); ++i) {
        if (!done[i]) scene.ready[kept++] = scene.ready[i];
      }
      scene.ready.resize(kept);
    }
  }
}

// As if what the plan has had ended and as much had become ready since, behind what waits.
void Renew(const Plan& plan, Scene& scene) {
  std::array<bool, kMaxReady> planned{};
  for (int i = 0; i < plan.op_count; ++i) planned[plan.ops[i]] = true;
  std::vector<ReadyOp> kept, renewed;
  for (size_t i = 0; i < scene.ready.size(); ++i) {
    (planned[i] ? renewed : kept).push_back(scene.ready[i]);
  }
  for (ReadyOp& op : renewed) op.ready_at = scene.now;
  kept.insert(kept.end(), renewed.begin(), renewed.end());
  scene.ready = kept;
}

// How many decisions it takes until the op goes out of a session that has one only.
int DecisionsUntil(uint32_t session, Policy& policy, Scene& scene) {
  Plan plan;
  for (int decisions = 1; decisions <= kMaxReady; ++decisions, scene.now += 100'000) {
    policy.Reclaim();
    policy.Decide(scene.Get(), plan);
    for (int i = 0; i < plan.op_count; ++i) {
      if (scene.ready[plan.ops[i]].session == session) return decisions;
    }
    Renew(plan, scene);
  }
  return kMaxReady + 1;
}

// Who keeps any number of copies or programs ready keeps no other op of the class waiting.
TEST_P(PolicyContractTest, WhatGoesAheadLeavesRoomForOthers) {
  constexpr uint32_t kOne = 1000;
  for (const Work& many : {Copy(1 << 20), ProgramOf(4, 1 << 20)}) {
    for (const Work& one : {Groupable(64, 1536, 4096), Gemm(4096, 4096, 4096), Rows(64, 4096)}) {
      Scene scene;
      scene.device.group_kernel = GetParam().group_kernel;
      for (uint32_t session = 1; session < kMaxReady; ++session) scene.Of(session, many);
      scene.Of(kOne, one);
      EXPECT_LE(DecisionsUntil(kOne, *policy_, scene), kMaxReady)
          << "behind ops of " << many.steps << " steps: one of " << one.m << "x" << one.n;
    }
  }
}

std::vector<Param> AllParams() {
  std::vector<Param> params;
  for (const PolicyInfo& info : AllPolicies()) {
    for (const bool group_kernel : {false, true}) params.push_back({info, group_kernel});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(All, PolicyContractTest, testing::ValuesIn(AllParams()),
                         [](const auto& info) {
                           return std::string(info.param.info.name) +
                                  (info.param.group_kernel ? "WithGroups" : "");
                         });

// The do-no-harm rules of policies/auto/split/launch_splitter.h.
class DoNoHarmTest : public testing::TestWithParam<bool> {
 protected:
  DoNoHarmTest() : policy_(MakeAuto(InputsFor(GetParam()))) {}

  std::unique_ptr<Policy> policy_;
  Plan plan_;
};

TEST_P(DoNoHarmTest, NoPlanIsPredictedWorseThanSerial) {
  RandomScenes scenes(test::Seed() + 3);
  std::mt19937 random(test::Seed());
  for (int round = 0; round < kRounds; ++round) {
    const Scene scene = scenes.Next(GetParam());
    policy_->Reclaim();
    policy_->Decide(scene.Get(), plan_);
    ASSERT_LE(plan_.predicted_us, plan_.serial_us * 1.0001f)
        << "seed " << test::Seed() + 3 << " round " << round;
    // Whatever was measured before.
    const float factor = 0.3f + static_cast<float>(random() % 1000) / 400;
    for (int i = 0; i < 5; ++i) {
      policy_->Learn({plan_.tag, plan_.predicted_us, plan_.predicted_us * factor});
    }
  }
}

// When each session's last GEMM of the plan ends, by what launches and work lists predict.
std::vector<float> SessionEnds(const Scene& scene, const Plan& plan) {
  std::vector<float> ends(kMaxReady, 0);
  float start_us = 0;
  for (const PlannedLaunch& launch : plan.launch_span()) {
    const bool streams = launch.form == Form::kStreams;
    for (int i = 0; i < launch.count; ++i) {
      float& end = ends[scene.ready[plan.OpsOf(launch)[i]].session];
      const float run_us =
          launch.form == Form::kGroup ? launch.work_list->ends_us[i] : launch.predicted_us;
      end = std::max(end, (streams ? 0 : start_us) + run_us);
    }
    start_us += streams ? 0 : launch.predicted_us;
  }
  return ends;
}

TEST_P(DoNoHarmTest, NoSessionEndsLaterThanItsTurnOrItsShare) {
  std::mt19937 random(test::Seed() + 4);
  const auto below = [&](int bound) { return static_cast<int>(random() % bound); };
  for (int round = 0; round < kRounds; ++round) {
    Scene scene;
    scene.device.group_kernel = GetParam();
    const int sessions = 1 + below(12);
    std::vector<float> work_us(sessions, 0);
    for (int session = 0; session < sessions; ++session) {
      for (int i = 1 + below(6); i > 0; --i) {
        const Work work = Groupable(16 << below(9), 128 << below(6), 64 << below(7));
        scene.Of(session, work);
        work_us[session] += static_cast<float>(SoloUs(scene.device, work)) + 1;  // and its signal
      }
    }
    policy_->Reclaim();
    policy_->Decide(scene.Get(), plan_);
    const std::vector<float> ends = SessionEnds(scene, plan_);
    float turn_us = 0;
    for (int session = 0; session < sessions; ++session) {
      float share_us = 0;
      turn_us += work_us[session];
      for (const float other_us : work_us) share_us += std::min(work_us[session], other_us);
      ASSERT_LE(ends[session], std::max(turn_us, share_us) * 1.001f)
          << "seed " << test::Seed() + 4 << " round " << round << " session " << session;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DoNoHarmTest, testing::Bool(), [](const auto& info) {
  return info.param ? "WithGroups" : "WithoutGroups";
});

}  // namespace
}  // namespace concert::policies
