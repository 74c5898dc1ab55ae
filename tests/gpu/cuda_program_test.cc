// Programs on a GPU: a model's decode step, by the step kernel and as a graph, against the CPU
// references of its ops.
#include <climits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/program/program_engine.h"
#include "kernels/step/at_work.h"
#include "kernels/step/engine_contest.h"
#include "tests/gpu/gpu_model.h"
#include "tests/gpu/model_check.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"

namespace concert::tests {
namespace {

using kernels::ProgramEngine;
using kernels::cuda::AtWork;
using kernels::cuda::EngineContest;

// What each of a model's steps should leave, one after the other; or of the states only the last.
struct References {
  explicit References(const ModelStep& model, bool each_state = true) {
    HostModel host(model);
    for (uint32_t step = 0; step < model.shape().steps; ++step) {
      inputs.push_back(model.InputsOf(step));
      left.push_back({host.Run(inputs.back()), {}});
      if (each_state || step + 1 == model.shape().steps) left.back().state = host.state();
    }
  }

  std::vector<StepInputs> inputs;
  std::vector<Left> left;
};

// With nodes of its own, one for each engine, beside the one that other tests share, whose engine
// is automatic.
class GpuProgramTest : public GpuTest {
 protected:
  static constexpr policies::Lane kLane = 2;

  static void SetUpTestSuite() {
    if (kEnvironment->node_ == nullptr) return;
    for (const ProgramEngine engine : {ProgramEngine::kStep, ProgramEngine::kGraph}) {
      absl::StatusOr<std::unique_ptr<daemon::Node>> node =
          daemon::OpenCudaNode({.program_engine = engine});
      ASSERT_TRUE(node.ok()) << node.status();
      (engine == ProgramEngine::kStep ? step_node_ : graph_node_) = *std::move(node);
    }
  }
  static void TearDownTestSuite() {
    step_node_.reset();
    graph_node_.reset();
  }

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(step_node_ != nullptr && graph_node_ != nullptr);
    Use(ProgramEngine::kStep);
  }

  daemon::Node& node() override {
    switch (engine_) {
      case ProgramEngine::kStep:
        return *step_node_;
      case ProgramEngine::kGraph:
        return *graph_node_;
      case ProgramEngine::kAuto:
        break;
    }
    return *kEnvironment->node_;
  }

  // The step kernel is built for compute capability 9.0 alone.
  bool HasStepKernel() { return device().info().compute_capability == 90; }
  std::vector<ProgramEngine> Engines() {
    if (HasStepKernel()) return {ProgramEngine::kStep, ProgramEngine::kGraph};
    return {ProgramEngine::kGraph};
  }
  // Session 0 is the only one at work, so that the step kernel has all SMs.
  void Use(ProgramEngine engine) {
    engine_ = engine;
    RunCopies(0, AtWork::kIdleAfter);
  }
  // Single ops of a session.
  void RunCopies(uint32_t session, uint64_t count) {
    const HostMirror memory(device(), 256, 0);
    Op op;
    op.kind = CONCERT_OP_COPY;
    op.session = session;
    op.copy = {.src = memory.address(), .dst = memory.address() + 128, .bytes = 128};
    const Op* const ops[] = {&op};
    for (uint64_t i = 0; i < count; ++i)
      ASSERT_OK(device().Launch({.planned = {.count = 1, .lane = kLane}, .ops = ops}));
    Finish(kLane);
  }

  // Null after a failure.
  std::unique_ptr<GpuModel> Make(const ModelStep& model, uint32_t blocks = 1) {
    auto gpu = std::make_unique<GpuModel>(device(), model, blocks);
    const absl::Status made = gpu->Make();
    EXPECT_TRUE(made.ok()) << made;
    if (!made.ok()) return nullptr;
    if (HasStepKernel()) {
      const bool graph = engine_ == ProgramEngine::kGraph;
      EXPECT_EQ(gpu->program().why_no_step, graph ? "program_engine is graph" : "");
      EXPECT_EQ(gpu->program().stages.empty(), graph);
    }
    return gpu;
  }

  // A run with memory poisoned before it; what it left.
  void Run(GpuModel& gpu, const std::vector<uint8_t>& block, int sm_budget, Left& left) {
    gpu.Put(block);
    gpu.PoisonArena();
    ASSERT_OK(gpu.Launch(kLane, sm_budget));
    ASSERT_NO_FATAL_FAILURE(Finish(kLane));
    ASSERT_OK(device().healthy());
    left = {gpu.FetchBlock(), gpu.FetchState()};
  }

  // Each step by the engine in use, one after the other.
  void CheckSteps(const ModelStep& model, const References& references, int sm_budget = 0) {
    const std::unique_ptr<GpuModel> gpu = Make(model);
    ASSERT_NE(gpu, nullptr);
    std::vector<uint8_t> before = model.state();
    for (uint32_t step = 0; step < model.shape().steps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const StepInputs& inputs = references.inputs[step];
      Left left, again;
      ASSERT_NO_FATAL_FAILURE(Run(*gpu, model.BlockOf(inputs), sm_budget, left));
      ASSERT_EQ(gpu->StepKernelHasRun(), engine_ == ProgramEngine::kStep);
      ExpectRight(model, inputs, before, left, references.left[step]);
      // It appends what is there already, and gives the same bits.
      ASSERT_NO_FATAL_FAILURE(Run(*gpu, model.BlockOf(inputs), sm_budget, again));
      EXPECT_TRUE(again.block == left.block && again.state == left.state);
      before = std::move(left.state);
    }
  }

  // By both engines.
  void CheckShape(const ModelShape& shape, uint32_t seed, int sm_budget = 0) {
    SCOPED_TRACE(shape.Describe() + ", budget " + std::to_string(sm_budget));
    const ModelStep model(shape, seed);
    const References references(model);
    for (const ProgramEngine engine : Engines()) {
      SCOPED_TRACE(NameOf(engine));
      Use(engine);
      CheckSteps(model, references, sm_budget);
      if (HasFatalFailure()) return;
    }
  }

  struct Tenant {
    std::unique_ptr<ModelStep> model;
    std::unique_ptr<References> references;
    std::unique_ptr<GpuModel> gpu;
    policies::Lane lane = 0;
    int sm_budget = 0;
  };
  void MakeTenant(const ModelShape& shape, int sm_budget, std::vector<Tenant>& tenants);
  void CheckTenant(Tenant& tenant);
  void RunTenants(std::vector<Tenant>& tenants);
  void RunBesideOneAnother(uint32_t count, const std::vector<int>& sm_budgets);

  static std::unique_ptr<daemon::Node> step_node_, graph_node_;
  ProgramEngine engine_ = ProgramEngine::kStep;
};
std::unique_ptr<daemon::Node> GpuProgramTest::step_node_, GpuProgramTest::graph_node_;

// Sequences of all lengths, and rows without one.
std::vector<int32_t> Contexts(uint32_t rows) {
  constexpr int32_t kSome[] = {100, 0, 15, kPaddingRow, 700, 1, 16, 3000, 63, 31};
  std::vector<int32_t> contexts;
  for (uint32_t row = 0; row < rows; ++row) contexts.push_back(kSome[row % std::size(kSome)]);
  return contexts;
}

std::vector<ModelShape> Shapes() {
  return {
      {},
      {.hidden = 512, .q_heads = 8, .kv_heads = 8, .ffn = 1088, .contexts = {0, 1, 15}},
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
       .wide_indices = true,
       .odd_bindings = true},
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
  for (const ModelShape& shape : Shapes()) {
    CheckShape(shape, seed++);
    if (HasFatalFailure()) return;
  }
}

// Blocks for which no matrix has columns go from one attention straight to the next, most of them
// without a token, and leave their sums where others may not have read those before.
TEST_F(GpuProgramTest, ChunksWithoutTokensOverwriteNothingThatIsRead) {
  CheckShape(
      {.q_heads = 1, .kv_heads = 1, .ffn = 64, .layers = 3, .contexts = {3000, 1, kPaddingRow}},
      Seed());
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

// A program of a session of its own on a lane of its own, beside those that are there.
void GpuProgramTest::MakeTenant(const ModelShape& shape, int sm_budget,
                                std::vector<Tenant>& tenants) {
  const auto number = static_cast<uint32_t>(tenants.size());
  Tenant& tenant = tenants.emplace_back();
  tenant.model = std::make_unique<ModelStep>(shape, Seed() + number);
  tenant.references = std::make_unique<References>(*tenant.model, /*each_state=*/false);
  tenant.gpu = Make(*tenant.model, shape.steps);
  ASSERT_NE(tenant.gpu, nullptr);
  tenant.gpu->set_session(number + 1);
  tenant.lane = static_cast<policies::Lane>(kLane + number);
  tenant.sm_budget = sm_budget;
  for (uint32_t step = 0; step < shape.steps; ++step)
    tenant.gpu->Put(tenant.model->BlockOf(tenant.references->inputs[step]), step);
}

void GpuProgramTest::CheckTenant(Tenant& tenant) {
  const ModelStep& model = *tenant.model;
  std::vector<int64_t> slots;
  for (uint32_t step = 0; step < model.shape().steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const StepInputs& inputs = tenant.references->inputs[step];
    ExpectRightBlock(model, inputs, tenant.gpu->FetchBlock(step),
                     tenant.references->left[step].block);
    slots.insert(slots.end(), inputs.slots.begin(), inputs.slots.end());
  }
  ExpectRightState(model, slots, model.state(), tenant.gpu->FetchState(),
                   tenant.references->left.back().state);
  EXPECT_EQ(tenant.gpu->StepKernelHasRun(), engine_ == ProgramEngine::kStep);
}

// Nothing waits for a run but what follows it on its lane. All have as many steps.
void GpuProgramTest::RunTenants(std::vector<Tenant>& tenants) {
  // More than 32 launches that have not ended would go as graphs.
  const uint32_t batch = std::max(1u, 30 / static_cast<uint32_t>(tenants.size()));
  const uint32_t steps = tenants[0].model->shape().steps;
  for (uint32_t first = 0; first < steps; first += batch) {
    for (uint32_t step = first; step < std::min(steps, first + batch); ++step) {
      for (Tenant& tenant : tenants)
        ASSERT_OK(tenant.gpu->Launch(tenant.lane, tenant.sm_budget, step));
    }
    for (Tenant& tenant : tenants) ASSERT_NO_FATAL_FAILURE(Finish(tenant.lane));
  }
  ASSERT_OK(device().healthy());
  for (Tenant& tenant : tenants) {
    SCOPED_TRACE("lane " + std::to_string(tenant.lane) + ": " + tenant.model->shape().Describe());
    CheckTenant(tenant);
  }
}

void GpuProgramTest::RunBesideOneAnother(uint32_t count, const std::vector<int>& sm_budgets) {
  for (const ProgramEngine engine : Engines()) {
    SCOPED_TRACE(std::string(NameOf(engine)) + ", programs: " + std::to_string(count));
    Use(engine);
    std::vector<Tenant> tenants;
    for (uint32_t i = 0; i < count; ++i) {
      const ModelShape shape{.hidden = 512 + 64 * i,
                             .q_heads = 8,
                             .kv_heads = i % 2 == 0 ? 2u : 8u,
                             .ffn = 1088,
                             .layers = 2,
                             .contexts = Contexts(i % 2 == 0 ? 4 : 17),
                             .steps = 24};
      ASSERT_NO_FATAL_FAILURE(MakeTenant(shape, sm_budgets[i % sm_budgets.size()], tenants));
    }
    ASSERT_NO_FATAL_FAILURE(RunTenants(tenants));
  }
}

TEST_F(GpuProgramTest, RunsBehindOneAnotherAreRight) { RunBesideOneAnother(1, {0}); }

// Contexts that grew token by token, on both engines. Nobody looks before the last step.
TEST_F(GpuProgramTest, SequencesGrowForTwoThousandSteps) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  const ModelShape shape{.contexts = {0, 20, kPaddingRow, 300},
                         .steps = std::min(2000u, Repetitions(2000))};
  for (const ProgramEngine engine : Engines()) {
    SCOPED_TRACE(NameOf(engine));
    Use(engine);
    std::vector<Tenant> tenants;
    ASSERT_NO_FATAL_FAILURE(MakeTenant(shape, 0, tenants));
    ASSERT_NO_FATAL_FAILURE(RunTenants(tenants));
  }
}

TEST_F(GpuProgramTest, TwoProgramsAtOnceAreRight) { RunBesideOneAnother(2, {0}); }

TEST_F(GpuProgramTest, FiveProgramsAtOnceAreRight) { RunBesideOneAnother(5, {0}); }

TEST_F(GpuProgramTest, ProgramsAtOnceOnFewSmsAreRight) { RunBesideOneAnother(4, {16, 32, 0}); }

// By who else is at work: nobody, programs or single ops (docs/adr/0029-a-step-is-one-launch.md).
TEST_F(GpuProgramTest, AutomaticallyTheEngineFollowsWhoIsAtWork) {
  if (!HasStepKernel()) GTEST_SKIP() << "no step kernel for this GPU";
  Use(ProgramEngine::kAuto);
  const ModelStep model({}, Seed());
  const References references(model);
  const std::unique_ptr<GpuModel> gpu = Make(model);
  ASSERT_NE(gpu, nullptr);
  const auto by_step_kernel = [&](uint32_t session) {
    gpu->set_session(session);
    Left left;
    Run(*gpu, model.BlockOf(references.inputs[0]), 0, left);
    if (HasFatalFailure()) return false;
    ExpectRight(model, references.inputs[0], model.state(), left, references.left[0]);
    return gpu->StepKernelHasRun();
  };
  EXPECT_TRUE(by_step_kernel(0));
  // Beside another session's programs: a contest of both engines.
  for (const bool step : {true, false}) {
    for (int round = 0; round < EngineContest::kRounds; ++round) {
      EXPECT_EQ(by_step_kernel(1), step) << "round " << round;
      EXPECT_EQ(by_step_kernel(0), step) << "round " << round;
    }
  }
  // Beside single ops, until these are forgotten.
  RunCopies(0, 1);
  for (uint64_t i = 1; i < AtWork::kIdleAfter; ++i) EXPECT_FALSE(by_step_kernel(1)) << "run " << i;
  EXPECT_TRUE(by_step_kernel(1));
}

}  // namespace
}  // namespace concert::tests
