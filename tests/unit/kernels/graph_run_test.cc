// What a graph launches gives what the ops give that it is made of: random programs, on the CPU.
// CONCERT_TEST_REPETITIONS says how many.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/program/transfers.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"
#include "tests/unit/kernels/node_runner.h"
#include "tests/unit/kernels/random_step.h"

namespace concert::kernels {
namespace {

TEST(GraphRunTest, NodesGiveWhatTheirOpsGive) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  const uint32_t rounds = test::Repetitions(24);
  uint32_t folded = 0, handed_over = 0, rotated = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    StepModel model = RandomModel(random);
    model.advances_slots = random() % 2 == 0;
    StepMemory initial(random), by_ops = initial, by_nodes = initial;
    const uint32_t seed = random();
    RunRandom(model, by_ops, seed, ComputeOps);
    RunRandom(model, by_nodes, seed, [&](const ProgramArgs& args) {
      const std::vector<GraphNode> nodes = GraphNodesOf(*args.program);
      for (const GraphNode& node : nodes) {
        folded += node.IsLaunched() ? 0 : 1, handed_over += node.takes ? 1 : 0;
        rotated += node.skinny.rope.parts;
      }
      ComputeTransfers(args, Way::kIn);
      NodeRunner().Run(nodes);
      ComputeTransfers(args, Way::kOut);
    });
    ASSERT_LT(Distance(by_nodes.bindings, by_ops.bindings), 2e-2) << "round " << round;
    ASSERT_LT(Distance(by_nodes.cache, by_ops.cache), 2e-2) << "round " << round;
  }
  EXPECT_GT(folded, rounds);
  EXPECT_GT(handed_over, rounds / 4);
  EXPECT_GT(rotated, rounds / 4);
}

}  // namespace
}  // namespace concert::kernels
