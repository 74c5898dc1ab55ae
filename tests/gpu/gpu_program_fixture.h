// Programs on a GPU: nodes for each engine, and a model's decode step run and compared with the CPU
// references of its ops.
#ifndef CONCERT_TESTS_GPU_GPU_PROGRAM_FIXTURE_H_
#define CONCERT_TESTS_GPU_GPU_PROGRAM_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/program/program_engine.h"
#include "kernels/step/at_work.h"
#include "tests/gpu/gpu_model.h"
#include "tests/gpu/model_check.h"

namespace concert::test {

using kernels::ProgramEngine;
using kernels::cuda::AtWork;

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

  static inline std::unique_ptr<daemon::Node> step_node_, graph_node_;
  ProgramEngine engine_ = ProgramEngine::kStep;
};

// Sequences of all lengths, and rows without one.
inline std::vector<int32_t> Contexts(uint32_t rows) {
  constexpr int32_t kSome[] = {100, 0, 15, kPaddingRow, 700, 1, 16, 3000, 63, 31};
  std::vector<int32_t> contexts;
  for (uint32_t row = 0; row < rows; ++row) contexts.push_back(kSome[row % std::size(kSome)]);
  return contexts;
}

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_GPU_PROGRAM_FIXTURE_H_
