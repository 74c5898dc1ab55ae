// Programs that share weights as one: results on the CPU against each program's own.
#include "kernels/program/pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/program/program_op.h"
#include "kernels/program/program_times.h"
#include "kernels/program/transfers.h"
#include "kernels/step/step_plan.h"
#include "tests/support/seed.h"
#include "tests/unit/kernels/node_runner.h"
#include "tests/unit/kernels/random_step.h"

namespace concert::kernels {
namespace {

Address AlignedIn(std::vector<uint16_t>& memory) {
  return (reinterpret_cast<Address>(memory.data()) + 255) / 256 * 256;
}

// A program with memory of its own, but for the weights, and a run of it.
class Replica {
 public:
  // `seed`: what is recorded.
  Replica(const StepModel& model, StepMemory& weights, const StepMemory& own, uint32_t seed)
      : Replica(model, weights, own, [&](StepRecorder& recorder) {
          std::mt19937 same(seed);
          RecordRandom(recorder, model, same);
        }) {}
  Replica(const StepModel& model, StepMemory& weights, const StepMemory& own,
          const std::function<void(StepRecorder&)>& record)
      : memory_(own), buffers_(memory_.buffers()) {
    buffers_[kStepWeights] = weights.buffers()[kStepWeights];
    recorder_ = std::make_unique<StepRecorder>(model, buffers_);
    record(*recorder_);
    arena_.resize(recorder_->PlaceArena() / 2 + 128);
    program_ = recorder_->Bind(AlignedIn(arena_));
  }

  PassMember member() const { return {program_.get(), recorder_->Source()}; }
  const Program& program() const { return *program_; }
  const StepMemory& memory() const { return memory_; }
  StepRecorder& recorder() { return *recorder_; }

  // In the pass as its member, or alone.
  Op Run(const Pass* pass = nullptr, uint32_t member = 0) {
    Op op;
    op.kind = CONCERT_OP_PROGRAM;
    op.work = program_->work;
    op.program = {.program = program_.get(), .bindings = {}, .pass = pass, .member = member};
    Address next = reinterpret_cast<Address>(memory_.bindings.data());
    for (size_t i = 0; i < program_->bindings.size(); ++i) {
      op.program.bindings[i] = next;
      next += program_->bindings[i].bytes;
    }
    return op;
  }

 private:
  StepMemory memory_;
  std::vector<BufferRange> buffers_;
  std::unique_ptr<StepRecorder> recorder_;
  std::vector<uint16_t> arena_;
  std::unique_ptr<Program> program_;
};

void Compute(const std::vector<Op>& runs) {
  std::vector<const Op*> parts;
  for (const Op& run : runs) parts.push_back(&run);
  ComputeProgram(parts);
}

std::vector<PassMember> MembersOf(const std::vector<Replica>& replicas) {
  std::vector<PassMember> members;
  for (const Replica& replica : replicas) members.push_back(replica.member());
  return members;
}

// Some replicas of one random program, each twice.
struct Twins {
  Twins(const StepModel& model, std::mt19937& random) : weights(random) {
    const uint32_t seed = random();
    for (size_t i = 0; i < 2 + random() % 3; ++i) {
      const StepMemory own(random);
      alone.emplace_back(model, weights, own, seed);
      together.emplace_back(model, weights, own, seed);
    }
  }
  void ExpectAlike(double tolerance) const {
    for (size_t i = 0; i < together.size(); ++i) {
      const StepMemory &its = together[i].memory(), &others = alone[i].memory();
      ASSERT_LT(Distance(its.bindings, others.bindings), tolerance) << "replica " << i;
      ASSERT_LT(Distance(its.cache, others.cache), tolerance) << "replica " << i;
    }
  }

  StepMemory weights;
  std::vector<Replica> alone, together;
};

TEST(PassTest, MembersGetWhatTheyGetAloneWhoeverTakesPart) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  for (int round = 0; round < 12; ++round) {
    StepModel model = RandomModel(random);
    model.rows = std::min(model.rows, 8u);
    model.row_scales = random() % 2 == 0;
    Twins twins(model, random);
    std::vector<Replica>&alone = twins.alone, &together = twins.together;
    const std::vector<PassMember> members = MembersOf(together);
    const absl::StatusOr<PassPlan> plan = PlanPass(members);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<uint16_t> arena(plan->arena.bytes / 2 + 128, 0xffff);  // NaN
    const auto pass = BindPass(members, *plan, AlignedIn(arena));
    ASSERT_TRUE(pass.ok()) << pass.status();
    for (int step = 0; step < 2; ++step) {
      std::vector<Op> runs;
      for (uint32_t i = 0; i < together.size(); ++i) {
        if (random() % 3 == 0) continue;  // does not take part
        runs.push_back(together[i].Run(pass->get(), i));
        Compute({alone[i].Run()});
      }
      std::shuffle(runs.begin(), runs.end(), random);
      if (!runs.empty()) Compute(runs);
    }
    // One row alone is summed in another order than rows of several members: a last bit may differ.
    ASSERT_NO_FATAL_FAILURE(twins.ExpectAlike(1e-3)) << "round " << round;
  }
}

// By what the pass's graph launches.
TEST(PassTest, NodesGiveMembersWhatTheyGetAlone) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  for (int round = 0; round < 12; ++round) {
    StepModel model = RandomModel(random);
    model.rows = std::min(model.rows, 8u);
    Twins twins(model, random);
    std::vector<Replica>& together = twins.together;
    const absl::StatusOr<PassPlan> plan = PlanPass(MembersOf(together));
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<uint16_t> arena(plan->arena.bytes / 2 + 128, 0xffff);  // NaN
    const auto pass = BindPass(MembersOf(together), *plan, AlignedIn(arena));
    ASSERT_TRUE(pass.ok()) << pass.status();
    std::vector<Op> runs;
    for (uint32_t i = 0; i < together.size(); ++i) runs.push_back(together[i].Run(pass->get(), i));
    for (const Op& run : runs) ComputeTransfers(run.program, Way::kIn);
    NodeRunner().Run(GraphNodesOf((*pass)->program, (*pass)->owners));
    for (const Op& run : runs) ComputeTransfers(run.program, Way::kOut);
    for (Replica& replica : twins.alone) Compute({replica.Run()});
    ASSERT_NO_FATAL_FAILURE(twins.ExpectAlike(2e-2)) << "round " << round;
  }
}

TEST(PassTest, WeightsAreReadOnceAndCachesByEach) {
  std::mt19937 random(test::Seed());
  const StepModel model;
  StepMemory weights(random);
  std::vector<Replica> replicas;
  for (int i = 0; i < 3; ++i) replicas.emplace_back(model, weights, weights, /*seed=*/8);
  const std::vector<PassMember> members = MembersOf(replicas);
  const absl::StatusOr<PassPlan> plan = PlanPass(members);
  ASSERT_TRUE(plan.ok()) << plan.status();
  uint64_t weight_bytes = 0;
  for (size_t i = 0; i < plan->wide.size(); ++i) {
    const Op& op = replicas[0].program().ops[i];
    const bool of_each =
        op.kind == CONCERT_OP_ROPE_APPEND || op.kind == CONCERT_OP_ATTENTION_DECODE;
    EXPECT_EQ(plan->wide[i], !of_each) << i;
    if (op.kind == CONCERT_OP_GEMM) weight_bytes += uint64_t{2} * op.work.n * op.work.k;
  }
  EXPECT_GE(plan->shared_bytes, weight_bytes);
  EXPECT_LT(plan->shared_bytes, weight_bytes * 11 / 10);  // and gains of norms

  std::vector<uint16_t> arena(plan->arena.bytes / 2 + 128);
  const auto pass = BindPass(members, *plan, AlignedIn(arena));
  ASSERT_TRUE(pass.ok()) << pass.status();
  const Op first = replicas[0].Run(pass->get(), 0), second = replicas[1].Run(pass->get(), 1);
  const Op* const runs[] = {&first, &second};
  const policies::Work work = WorkOfPass(**pass, runs);
  EXPECT_EQ(work.hbm_bytes, 2 * first.work.hbm_bytes - plan->shared_bytes);
  EXPECT_EQ(work.flops, 2 * first.work.flops);
  EXPECT_EQ(work.steps, first.work.steps);

  // It takes what a pass of so many takes: more than one run, less than one after the other.
  const policies::DeviceModel device;
  SetRunTimes(device, replicas[0].program(), **pass);
  const float two_us = WorkOfPass(**pass, runs).run_us;
  const Program &all = (*pass)->program, &one = replicas[0].program();
  const std::vector<GraphNode> nodes = GraphNodesOf(all, (*pass)->owners);
  // Each member's heads go to its own cache, by one launch for all.
  const auto rotating = std::find_if(nodes.begin(), nodes.end(), [](const GraphNode& node) {
    return node.skinny.rope.parts != 0;
  });
  ASSERT_NE(rotating, nodes.end());
  const SkinnyRope& rope = rotating->skinny.rope;
  ASSERT_EQ(rope.parts, (*pass)->member_count);
  for (uint32_t part = 0; part < rope.parts; ++part) {
    const RopeAppendArgs& of_member = rotating[1 + part].op.rope_append;
    EXPECT_FALSE(rotating[1 + part].IsLaunched());
    EXPECT_EQ(rope.places[part].k, of_member.cache.k);
    EXPECT_EQ(rope.places[part].positions, of_member.positions);
    EXPECT_EQ(part > 0 && rope.places[part].k == rope.places[0].k, false);
  }
  const double one_us = GraphCostOf(device, all, nodes).us;
  const double alone_us = GraphCostOf(device, one, GraphNodesOf(one)).us;
  EXPECT_FLOAT_EQ(two_us, static_cast<float>(GraphCostOf(device, **pass, nodes, 2).us));
  EXPECT_GT(two_us, alone_us);
  EXPECT_LT(two_us, 1.5 * alone_us);
  EXPECT_LT(two_us, one_us) << "what members have by themselves is one launch for all";
  EXPECT_LT(two_us, (*pass)->run_costs[2].us);
}

// The slower memory is, the more it is worth to read weights once.
TEST(PassTest, FewMembersAreFasterBesideEachOther) {
  std::mt19937 random(test::Seed());
  const StepModel model;
  StepMemory weights(random);
  std::vector<Replica> replicas;
  for (int i = 0; i < 6; ++i) replicas.emplace_back(model, weights, weights, /*seed=*/8);
  const absl::StatusOr<PassPlan> plan = PlanPass(MembersOf(replicas));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto pass = BindPass(MembersOf(replicas), *plan, kUnplacedArena);
  ASSERT_TRUE(pass.ok()) << pass.status();
  const std::unique_ptr<Program> member = replicas[0].recorder().Bind(Address{1} << 40);
  policies::DeviceModel device;
  SetRunTimes(device, *member, **pass);
  EXPECT_EQ((*pass)->least_together, 2u) << "no step kernel runs it";
  const absl::StatusOr<StepPlan> steps = PlanStep(*member, kStepExchangeBytes);
  ASSERT_TRUE(steps.ok()) << steps.status();
  member->stages = StagesOf(*member, *steps);
  std::vector<uint32_t> least;
  for (; device.hbm_bytes_per_s > 1e9; device.hbm_bytes_per_s /= 1.2) {
    SetRunTimes(device, *member, **pass);
    least.push_back((*pass)->least_together);
  }
  EXPECT_EQ(least.front(), 7u) << "of so few bytes none are worth a launch for each op";
  EXPECT_LE(least.back(), 3u);
  EXPECT_TRUE(std::is_sorted(least.rbegin(), least.rend()));
}

// Fields that are no operands count; where state lies does not.
TEST(PassTest, OnlyTheSameOverTheSameWeightsIsAReplica) {
  std::mt19937 random(test::Seed());
  const StepModel model;
  StepMemory weights(random), others(random);
  std::vector<Replica> replicas;
  replicas.emplace_back(model, weights, weights, 7);
  replicas.emplace_back(model, weights, others, 7);
  EXPECT_EQ(HashForPass(replicas[0].program()), HashForPass(replicas[1].program()));
  EXPECT_TRUE(PlanPass(MembersOf(replicas)).ok());

  std::vector<Replica> other_weights;
  other_weights.emplace_back(model, weights, weights, 7);
  other_weights.emplace_back(model, others, others, 7);
  EXPECT_NE(HashForPass(other_weights[0].program()), HashForPass(other_weights[1].program()));
  const absl::StatusOr<PassPlan> nothing_shared = PlanPass(MembersOf(other_weights));
  ASSERT_TRUE(nothing_shared.ok()) << nothing_shared.status();
  EXPECT_EQ(nothing_shared->shared_bytes, 0u);

  StepModel narrower = model;
  narrower.inner = model.inner / 2;
  std::vector<Replica> other_model;
  other_model.emplace_back(model, weights, weights, 7);
  other_model.emplace_back(narrower, weights, weights, 7);
  EXPECT_EQ(PlanPass(MembersOf(other_model)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// What one member does between two ops for all, another may do at any time between them.
void ExpectMembersApart(const Pass& pass) {
  for (size_t a = 0; a < pass.owners.size(); ++a) {
    for (size_t b = a; b < pass.owners.size() && pass.owners[b] != Pass::kAll; ++b) {
      if (pass.owners[a] == Pass::kAll || pass.owners[a] == pass.owners[b]) continue;
      const Accesses first = AccessesOf(pass.program.ops[a]);
      const Accesses second = AccessesOf(pass.program.ops[b]);
      for (const Access& one : first.list()) {
        for (const Access& two : second.list()) {
          if (!one.writes() && !two.writes()) continue;
          ASSERT_FALSE(one.memory.Bounds().Overlaps(two.memory.Bounds()))
              << "ops " << a << " and " << b;
        }
      }
    }
  }
}

TEST(PassTest, NoMembersOpTouchesWhatAnotherHoldsBetweenOpsForAll) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  for (int round = 0; round < 20; ++round) {
    const StepModel model = RandomModel(random);
    StepMemory weights(random);
    const uint32_t seed = random();
    std::vector<Replica> replicas;
    for (int i = 0; i < 3; ++i) {
      const StepMemory own(random);
      replicas.emplace_back(model, weights, own, seed);
    }
    const std::vector<PassMember> members = MembersOf(replicas);
    const absl::StatusOr<PassPlan> plan = PlanPass(members);
    ASSERT_TRUE(plan.ok()) << plan.status();
    constexpr Address kArena = Address{1} << 40;
    const auto pass = BindPass(members, *plan, kArena);
    ASSERT_TRUE(pass.ok()) << pass.status();
    ExpectMembersApart(**pass);
  }
}

// Of a head of so many columns: the logits are in the member's own memory, added to what is there,
// and what looks at them is the member's own op.
std::function<void(StepRecorder&)> KeepsLogits(uint32_t columns) {
  return [columns](StepRecorder& recorder) {
    const uint32_t hidden = recorder.model().hidden;
    const uint32_t in = recorder.Slot(hidden, /*binding=*/true);
    const uint32_t x = recorder.Slot(hidden), normed = recorder.Slot(hidden);
    const uint32_t seen = recorder.Slot(hidden, /*binding=*/true);
    recorder.Copy(in, hidden, x);
    recorder.Norm(x, 0, normed);
    concert_gemm_body& head = recorder.Gemm(normed, hidden, kStepCache, columns);
    head.c = head.d, head.ldc = head.ldd, head.beta = 1;
    recorder.Copy(kStepCache, hidden, seen);
  };
}
constexpr StepModel kHeadModel = {.rows = 4, .hidden = 1024};
constexpr uint32_t kHeadColumns = 17 * 1024;  // 34 MiB of weights

TEST(PassTest, WhatMembersKeepIsMadeOnceForAll) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  StepMemory weights(random, 40 * kMiB);
  std::vector<Replica> alone, together;
  for (int i = 0; i < 3; ++i) {
    const StepMemory own(random);
    alone.emplace_back(kHeadModel, weights, own, KeepsLogits(kHeadColumns));
    together.emplace_back(kHeadModel, weights, own, KeepsLogits(kHeadColumns));
  }
  const absl::StatusOr<PassPlan> plan = PlanPass(MembersOf(together));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->wide, (std::vector<bool>{true, true, true, false}));
  EXPECT_GT(plan->shared_bytes, uint64_t{kHeadColumns} * kHeadModel.hidden * 2 * 9 / 10);
  ASSERT_EQ(plan->staged.size(), 2u);
  EXPECT_TRUE(plan->staged[0].in != plan->staged[0].out &&
              plan->staged[1].in != plan->staged[1].out);
  std::vector<uint16_t> arena(plan->arena.bytes / 2 + 128, 0xffff);  // NaN
  const auto pass = BindPass(MembersOf(together), *plan, AlignedIn(arena));
  ASSERT_TRUE(pass.ok()) << pass.status();
  ExpectMembersApart(**pass);
  // The second takes no part in the first, and nothing of it changes.
  const std::vector<uint16_t> before = together[1].memory().cache;
  Compute({together[2].Run(pass->get(), 2), together[0].Run(pass->get(), 0)});
  EXPECT_EQ(together[1].memory().cache, before);
  Compute({together[0].Run(pass->get(), 0), together[1].Run(pass->get(), 1)});
  for (const size_t one : {0, 2, 0, 1}) Compute({alone[one].Run()});
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_LT(Distance(together[i].memory().bindings, alone[i].memory().bindings), 1e-3) << i;
    EXPECT_LT(Distance(together[i].memory().cache, alone[i].memory().cache), 1e-3) << i;
  }
}

TEST(PassTest, WhatMembersKeepIsMadeByEachWhereLittleIsShared) {
  std::mt19937 random(test::Seed());
  StepMemory weights(random);
  std::vector<Replica> replicas;
  for (int i = 0; i < 2; ++i)
    replicas.emplace_back(kHeadModel, weights, StepMemory(random), KeepsLogits(1024));
  const absl::StatusOr<PassPlan> plan = PlanPass(MembersOf(replicas));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->wide, (std::vector<bool>{true, true, false, false}));
  EXPECT_TRUE(plan->staged.empty());
}

}  // namespace
}  // namespace concert::kernels
