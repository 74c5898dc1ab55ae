// What a graph launches gives what the ops give that it is made of: random programs, on the CPU.
// CONCERT_TEST_REPETITIONS says how many.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "kernels/program/program_op.h"
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
    const auto run = [&](StepMemory& memory, uint32_t seed, auto&& follow) {
      std::mt19937 same(seed);
      const std::vector<BufferRange> buffers = memory.buffers();
      StepRecorder recorder(model, buffers);
      RecordRandom(recorder, model, same);
      std::vector<uint16_t> arena(recorder.PlaceArena() / 2 + 128);
      const Address aligned = (reinterpret_cast<Address>(arena.data()) + 255) / 256 * 256;
      const std::unique_ptr<Program> program = recorder.Bind(aligned);
      ProgramArgs args = {.program = program.get(), .bindings = {}};
      Address next = reinterpret_cast<Address>(memory.bindings.data());
      for (size_t i = 0; i < program->bindings.size(); ++i) {
        args.bindings[i] = next;
        next += program->bindings[i].bytes;
      }
      follow(args);
    };
    const uint32_t seed = random();
    run(by_ops, seed, [](const ProgramArgs& args) {
      Op op;
      op.kind = CONCERT_OP_PROGRAM;
      op.program = args;
      const Op* const part = &op;
      ComputeProgram({&part, 1});
    });
    run(by_nodes, seed, [&](const ProgramArgs& args) {
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
