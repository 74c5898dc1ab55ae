// What every policy owes the scheduler, on random snapshots. A program of its own because it counts
// every allocation by replacing operator new.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>

#include "policies/policy.h"
#include "tests/unit/policies/works.h"

namespace {
std::atomic<int64_t> allocations{0};

void* CountedAlloc(size_t size, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, size == 0 ? 1 : size) != 0) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(size_t size) { return CountedAlloc(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](size_t size) { return CountedAlloc(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(size_t size, std::align_val_t alignment) {
  return CountedAlloc(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace concert::policies {
namespace {

constexpr uint32_t kSeed = 20261121;
constexpr int kRounds = 2000;

class RandomScenes {
 public:
  explicit RandomScenes(uint32_t seed) : random_(seed) {}

  Scene Next() {
    Scene scene;
    const int ready = Pick({0, 1, 2, 3, 8, 17, 64, 100, kMaxReady});
    for (Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kLow}) {
      for (int i = 0; i < ready / 3 + (priority == Priority::kNormal ? ready % 3 : 0); ++i) {
        const Lane after = Below(2) == 0 ? kNoLane : static_cast<Lane>(Below(kLaneCount));
        scene.Ready(RandomWork(), priority, after);
      }
    }
    const int running = Pick({0, 0, 1, 2, 5, 20});
    for (int i = 0; i < running; ++i) {
      const bool collective = Below(5) == 0;
      const Lane lane = static_cast<Lane>(collective ? kCollectiveLane + Below(2) : Below(12));
      const Priority priority = IsHighPriority(lane) ? Priority::kHigh : Priority::kNormal;
      scene.Running(collective ? AllReduce(1 << 20) : RandomWork(), lane, priority);
    }
    return scene;
  }

 private:
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  int Pick(std::initializer_list<int> values) { return values.begin()[Below(values.size())]; }

  Work RandomWork() {
    switch (Below(8)) {
      case 0:
        return AllReduce(1 << Below(28));
      case 1:
        return Copy(1 << Below(28));
      case 2:
        return Work{};
      default:
        return Gemm(Pick({1, 16, 64, 333, 4096}), Pick({16, 768, 4096}), Pick({64, 479, 8192}));
    }
  }

  std::mt19937 random_;
};

class PolicyContractTest : public testing::TestWithParam<PolicyInfo> {
 protected:
  PolicyContractTest() : policy_(GetParam().make({})) {}

  std::unique_ptr<Policy> policy_;
};

void CheckPlan(const Scene& scene, const Plan& plan) {
  std::array<bool, kMaxReady> seen{};
  int covered = 0, predicted = 0;
  for (const PlannedLaunch& launch : plan.launch_span()) {
    ASSERT_EQ(launch.first, covered);
    ASSERT_GE(launch.count, 1);
    covered += launch.count;
    ASSERT_LT(launch.lane, kLaneCount);
    ASSERT_GT(launch.predicted_us, 0);
    for (const uint16_t index : plan.OpsOf(launch)) {
      ASSERT_LT(index, scene.ready.size());
      ASSERT_FALSE(seen[index]) << "op " << index << " twice";
      seen[index] = true;
      const bool collective = scene.ready[index].work.category == Category::kCollective;
      ASSERT_EQ(IsCollectiveLane(launch.lane), collective);
      predicted += collective ? 0 : 1;
    }
  }
  ASSERT_EQ(covered, plan.op_count);
  if (scene.ready.empty()) {
    ASSERT_EQ(plan.reason, Reason::kNothingReady);
  } else {
    ASSERT_NE(plan.reason, Reason::kNothingReady);
  }
  if (plan.empty()) {
    ASSERT_TRUE(scene.ready.empty() || !scene.running.empty()) << "idle with work ready";
  } else {
    // The plan's times are those of its compute: collectives get plans of their own.
    ASSERT_EQ(plan.predicted_us > 0, predicted > 0);
    ASSERT_EQ(plan.serial_us > 0, predicted > 0);
  }
}

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

TEST_P(PolicyContractTest, PlansAreValidAndNeedNoAllocation) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  RandomScenes scenes(kSeed);
  Plan plan;
  for (int round = 0; round < kRounds; ++round) {
    const Scene scene = scenes.Next();
    const Snapshot snapshot = scene.Get();
    const int64_t before = allocations.load();
    policy_->Decide(snapshot, plan);
    ASSERT_EQ(allocations.load(), before) << "round " << round;
    ASSERT_NO_FATAL_FAILURE(CheckPlan(scene, plan)) << "round " << round;
  }
}

// A policy that has seen 2000 snapshots (full caches) plans as one that has seen none.
TEST_P(PolicyContractTest, PlansDependOnTheSnapshotOnly) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  RandomScenes scenes(kSeed + 1);
  Plan warm, again, fresh;
  for (int round = 0; round < kRounds; ++round) {
    const Scene scene = scenes.Next();
    policy_->Decide(scene.Get(), warm);
    policy_->Decide(scene.Get(), again);
    ASSERT_TRUE(SamePlan(warm, again)) << "round " << round;
    if (round % 10 != 0) continue;
    GetParam().make({})->Decide(scene.Get(), fresh);
    ASSERT_TRUE(SamePlan(warm, fresh)) << "round " << round;
  }
}

TEST_P(PolicyContractTest, EverythingGoesOutInTheEnd) {
  RandomScenes scenes(kSeed + 2);
  Plan plan;
  for (int round = 0; round < 50; ++round) {
    Scene scene = scenes.Next();
    scene.running.clear();  // each plan has finished before the next decision
    while (!scene.ready.empty()) {
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

INSTANTIATE_TEST_SUITE_P(All, PolicyContractTest,
                         testing::ValuesIn(AllPolicies().begin(), AllPolicies().end()),
                         [](const auto& info) { return std::string(info.param.name); });

// The do-no-harm gate.
TEST(AutoContractTest, NeverPredictsWorseThanSerial) {
  const auto policy = FindPolicy("auto")->make({});
  RandomScenes scenes(kSeed + 3);
  Plan plan;
  for (int round = 0; round < kRounds; ++round) {
    const Scene scene = scenes.Next();
    policy->Decide(scene.Get(), plan);
    ASSERT_LE(plan.predicted_us, plan.serial_us) << "seed " << kSeed + 3 << " round " << round;
  }
}

}  // namespace
}  // namespace concert::policies
