// Programs on a GPU, one at a time: a model's decode step, by the step kernel and as a graph.
#include <climits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/gpu_program_fixture.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

std::vector<ModelShape> Shapes() {
  return {
      {},
      {.hidden = 512,
       .q_heads = 8,
       .kv_heads = 8,
       .ffn = 1088,
       .contexts = {0, 1, 15},
       .vocabulary = 50'257},
      {.hidden = 1536,
       .q_heads = 12,
       .kv_heads = 2,
       .head_dim = 128,
       .ffn = 2816,
       .layers = 2,
       .contexts = Contexts(9)},
      {.hidden = 896,
       .q_heads = 14,
       .kv_heads = 2,
       .ffn = 2432,
       .layers = 3,
       .page_size = 64,
       .contexts = Contexts(17),
       .vocabulary = 5001,
       .heads_first = true,
       .qkv_bias = true},
      {.hidden = 2048, .q_heads = 32, .kv_heads = 4, .ffn = 5632, .contexts = Contexts(32)},
      {.hidden = 1088,
       .q_heads = 8,
       .kv_heads = 2,
       .head_dim = 128,
       .ffn = 1536,
       .page_size = 1,
       .contexts = {3000, 2500, 700},
       .shared_prefix = true},
      {.hidden = 2816,
       .q_heads = 8,
       .kv_heads = 4,
       .ffn = 1536,
       .layers = 2,
       .contexts = Contexts(8),
       .window = 128},
      {.hidden = 512,
       .q_heads = 8,
       .kv_heads = 1,
       .head_dim = 128,
       .rotary_dim = 64,
       .contexts = Contexts(5),
       .soft_cap = 30,
       .interleaved = true},
      {.hidden = 768,
       .q_heads = 12,
       .kv_heads = 12,
       .contexts = Contexts(16),
       .vocabulary = 1010,
       .wide_indices = true,
       .odd_bindings = true},
  };
}

// What attention has to do with.
std::vector<ModelShape> ShapesOfAttention() {
  return {
      {.contexts = std::vector<int32_t>(5, kPaddingRow)},
      {.q_heads = 1, .kv_heads = 1, .layers = 2, .contexts = {3000}, .more_pages = 100},
      {.hidden = 640,
       .q_heads = 16,
       .kv_heads = 2,
       .head_dim = 128,
       .ffn = 2112,
       .page_size = 64,
       .contexts = Contexts(32),
       .window = 17,
       .soft_cap = 20,
       .heads_first = true},
      {.q_heads = 6,
       .kv_heads = 1,
       .page_size = 64,
       .contexts = {200, 190, 130, 100},
       .heads_first = true,
       .shared_prefix = true},
  };
}

ModelShape RandomShape(std::mt19937& random) {
  const auto one_of = [&](const auto&... choices) {
    const uint32_t all[] = {static_cast<uint32_t>(choices)...};
    return all[random() % std::size(all)];
  };
  const auto sometimes = [&] { return random() % 3 == 0; };
  ModelShape shape;
  shape.hidden = 64 * (4 + random() % 29), shape.ffn = 64 * (1 + random() % 44);
  shape.head_dim = one_of(64, 128), shape.rotary_dim = sometimes() ? shape.head_dim / 2 : 0;
  shape.kv_heads = one_of(1, 2, 4), shape.q_heads = shape.kv_heads * one_of(1, 2, 4, 6, 7, 8);
  shape.layers = one_of(1, 2);
  shape.page_size = one_of(1, 16, 64), shape.more_pages = one_of(0, 0, 3);
  shape.vocabulary = sometimes() ? 1 + random() % 3000 : 0;
  shape.window = one_of(0, 0, 0, 1, 40, 500), shape.soft_cap = sometimes() ? 25 : 0;
  shape.heads_first = sometimes(), shape.interleaved = sometimes(), shape.qkv_bias = sometimes();
  shape.wide_indices = sometimes(), shape.odd_bindings = sometimes();
  shape.contexts = Contexts(one_of(1, 2, 3, 8, 9, 16, 17, 24, 32));
  std::shuffle(shape.contexts.begin(), shape.contexts.end(), random);
  shape.shared_prefix = shape.rows() > 1 && sometimes();
  return shape;
}

// Of few heads, for what a reference on the CPU takes.
ModelShape RandomLongShape(std::mt19937& random) {
  ModelShape shape = RandomShape(random);
  shape.kv_heads = 1, shape.q_heads = 1 + random() % 4, shape.layers = 1;
  shape.hidden = 256, shape.ffn = 256, shape.page_size = 64;
  shape.contexts = {4000 + static_cast<int32_t>(random() % 28'000), 32'700};
  shape.contexts.resize(1 + random() % 2);
  shape.shared_prefix = false;
  return shape;
}

TEST_F(GpuProgramTest, EveryShapeIsRight) {
  uint32_t seed = 1;
  for (const std::vector<ModelShape>& shapes : {Shapes(), ShapesOfAttention()}) {
    for (const ModelShape& shape : shapes) {
      CheckShape(shape, seed++);
      if (HasFatalFailure()) return;
    }
  }
}

// Blocks for which no matrix has columns go from one attention straight to the next, most of them
// without a token, and leave their sums where others may not have read those before.
TEST_F(GpuProgramTest, ChunksWithoutTokensOverwriteNothingThatIsRead) {
  // One seed: of two rows the rounding of both engines comes to 0.012 with some, more than models
  // may be off by.
  CheckShape(
      {.q_heads = 1, .kv_heads = 1, .ffn = 64, .layers = 3, .contexts = {3000, 1, kPaddingRow}},
      /*seed=*/1);
}

TEST_F(GpuProgramTest, RandomShapesAreRight) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  std::mt19937 random(Seed());
  constexpr int kSmBudgets[] = {0, 0, 100, 64, 32, 16, 1};
  const uint32_t shapes = Repetitions(12);
  for (uint32_t i = 0; i < shapes; ++i) {
    const ModelShape shape = i % 12 == 5 ? RandomLongShape(random) : RandomShape(random);
    const auto seed = static_cast<uint32_t>(random());
    CheckShape(shape, seed, kSmBudgets[random() % std::size(kSmBudgets)]);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuProgramTest, SequencesGrow) {
  for (ModelShape shape :
       {ModelShape{.layers = 2, .page_size = 1, .contexts = {0, 120, 1}},
        ModelShape{
            .hidden = 1536, .q_heads = 14, .kv_heads = 2, .ffn = 1088, .contexts = Contexts(9)},
        ModelShape{.hidden = 512,
        .q_heads = 8,
        .kv_heads = 2,
        .head_dim = 128,
        .page_size = 64,
        .contexts = {50, 63, 60, 100, kPaddingRow, 0, 127, 1, 2, 3, 300, 310, 320, 15, 16, 17, 40},
        .heads_first = true,
        .shared_prefix = true}}) {
    shape.steps = 20;
    CheckShape(shape, Seed());
    if (HasFatalFailure()) return;
  }
}

// Of the step kernel on as many SMs; and right on any number of them.
TEST_F(GpuProgramTest, RunsOnTheSameSmsGiveTheSameBits) {
  if (!HasStepKernel()) GTEST_SKIP() << "no step kernel for this GPU";
  for (const ModelShape& shape :
       {ModelShape{.hidden = 1536,
       .q_heads = 12,
       .kv_heads = 2,
       .ffn = 2816,
       .layers = 2,
       .contexts = {3000, 700, 100}},
        ModelShape{.hidden = 1024, .q_heads = 8, .kv_heads = 8, .contexts = Contexts(17)}}) {
    SCOPED_TRACE(shape.Describe());
    const ModelStep model(shape, Seed());
    const References references(model);
    const StepInputs& inputs = references.inputs[0];
    const std::unique_ptr<GpuModel> gpu = Make(model);
    ASSERT_NE(gpu, nullptr);
    for (const int sm_budget : {0, 100, 32, 16, 1}) {
      SCOPED_TRACE("budget " + std::to_string(sm_budget));
      Left first;
      for (int run = 0; run < 7; ++run) {
        Left left;
        ASSERT_NO_FATAL_FAILURE(Run(*gpu, model.BlockOf(inputs), sm_budget, left));
        ASSERT_TRUE(gpu->StepKernelHasRun());
        if (run == 0) {
          first = std::move(left);
          ExpectRight(model, inputs, model.state(), first, references.left[0]);
        } else {
          EXPECT_TRUE(left.block == first.block && left.state == first.state) << "run " << run;
        }
      }
    }
  }
}

// It is told of before it ends, meanwhile others run beside it, and its program's next is a graph.
TEST_F(GpuProgramTest, ARunWhoseBlocksWaitInVainEnds) {
  if (!HasStepKernel()) GTEST_SKIP() << "no step kernel for this GPU";
  constexpr int kSms = 32;
  constexpr uint32_t kStage = 3, kSession = 7;
  const ModelStep model({}, Seed());
  const References references(model);
  const StepInputs& inputs = references.inputs[0];
  const std::unique_ptr<GpuModel> gpu = Make(model), other = Make(model);
  ASSERT_TRUE(gpu != nullptr && other != nullptr);
  gpu->set_session(kSession);
  gpu->HaveStageWaitForItself(kStage);
  gpu->Put(model.BlockOf(inputs)), other->Put(model.BlockOf(inputs));
  ASSERT_OK(gpu->Launch(kLane, kSms));
  ASSERT_OK(other->Launch(kLane + 1, kSms));
  ASSERT_NO_FATAL_FAILURE(Finish(kLane + 1));
  ExpectRight(model, inputs, model.state(), {other->FetchBlock(), other->FetchState()},
              references.left[0]);
  std::vector<kernels::StalledRun> stalled;
  const auto take = [&] {
    device().TakeStalledRuns([&](const kernels::StalledRun& run) { stalled.push_back(run); });
  };
  const Clock::time_point start = Clock::now();
  for (; stalled.empty() && Clock::now() - start < std::chrono::seconds(20); take()) {
  }
  ASSERT_EQ(stalled.size(), 1u);
  EXPECT_EQ(stalled[0].session, kSession);
  EXPECT_EQ(stalled[0].stage, kStage);
  EXPECT_LT(stalled[0].block, uint32_t{kSms});
  ASSERT_NO_FATAL_FAILURE(Finish(kLane));
  take();
  EXPECT_EQ(stalled.size(), 1u);
  ASSERT_OK(device().healthy());
  gpu->SetStalled();
  gpu->Reset();
  EXPECT_TRUE(gpu->StepKernelHasRun());
  Left left;
  ASSERT_NO_FATAL_FAILURE(Run(*gpu, model.BlockOf(inputs), 0, left));
  EXPECT_FALSE(gpu->StepKernelHasRun());
  ExpectRight(model, inputs, model.state(), left, references.left[0]);
}

// One table's entry of a row, or of all rows and all tables, are what they must not be.
TEST_F(GpuProgramTest, HostileTablesReachNothingElse) {
  constexpr int64_t kHostile[] = {-1, INT_MIN, INT_MAX, 1 << 20, 123'456'789};
  std::mt19937 random(Seed());
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  ModelShape shape{.hidden = 512,
                   .q_heads = 8,
                   .kv_heads = 2,
                   .layers = 2,
                   .contexts = {40, 0, 100, 300},
                   .whole_cache = true};
  for (const bool wide : {false, true}) {
    shape.wide_indices = wide;
    const ModelStep model(shape, random());
    const auto hostile = [&] {
      if (wide && random() % 2 == 0) return random() % 2 == 0 ? INT64_MAX : INT64_MIN;
      return kHostile[random() % std::size(kHostile)];
    };
    const auto hostile_32 = [&] {
      return static_cast<int32_t>(kHostile[random() % std::size(kHostile)]);
    };
    std::vector<StepInputs> cases;
    for (int i = 0; i < 6; ++i) {
      StepInputs& inputs = cases.emplace_back(model.InputsOf(0));
      const uint32_t row = random() % shape.rows();
      if (i % 2 == 0) inputs.positions[row] = hostile();
      if (i % 3 == 0) inputs.slots[row] = hostile();
      if (i % 2 == 1) inputs.lengths[random() % shape.rows()] = hostile_32();
      if (i % 3 == 1) inputs.pages[random() % inputs.pages.size()] = hostile_32();
    }
    for (const ProgramEngine engine : Engines()) {
      SCOPED_TRACE(NameOf(engine));
      Use(engine);
      const std::unique_ptr<GpuModel> gpu = Make(model);
      ASSERT_NE(gpu, nullptr);
      for (const StepInputs& inputs : cases) {
        HostModel host(model);
        gpu->Reset();
        const std::vector<uint8_t> right = host.Run(inputs);
        Left left;
        ASSERT_NO_FATAL_FAILURE(Run(*gpu, model.BlockOf(inputs), 0, left));
        ExpectRight(model, inputs, model.state(), left, {right, host.state()});
      }
    }
  }
}

// All at once, with numbers that are none. What comes of it is nobody's business.
TEST_F(GpuProgramTest, NothingButHostileTablesHarmsNobody) {
  std::mt19937 random(Seed());
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  const ModelShape shape{
      .hidden = 512, .q_heads = 8, .kv_heads = 2, .layers = 2, .contexts = Contexts(9)};
  const ModelStep model(shape, random());
  const References references(model);
  for (const ProgramEngine engine : Engines()) {
    SCOPED_TRACE(NameOf(engine));
    Use(engine);
    const std::unique_ptr<GpuModel> gpu = Make(model);
    ASSERT_NE(gpu, nullptr);
    for (int round = 0; round < 12; ++round) {
      StepInputs inputs = model.InputsOf(0);
      if (round % 3 == 0) inputs.hidden.assign(inputs.hidden.size(), 0xffff);
      const auto spoil = [&](auto& table) {
        for (auto& entry : table) entry = static_cast<int32_t>(random());
      };
      spoil(inputs.positions), spoil(inputs.slots), spoil(inputs.lengths), spoil(inputs.pages);
      Left left;
      ASSERT_NO_FATAL_FAILURE(Run(*gpu, model.BlockOf(inputs), 0, left));
      ExpectGuarded(model, inputs, model.state(), left);
    }
    EXPECT_TRUE(gpu->FetchWeights() == model.weights());
    gpu->Reset();
    Left left;
    const StepInputs& inputs = references.inputs[0];
    ASSERT_NO_FATAL_FAILURE(Run(*gpu, model.BlockOf(inputs), 0, left));
    ExpectRight(model, inputs, model.state(), left, references.left[0]);
  }
}

}  // namespace
}  // namespace concert::test
