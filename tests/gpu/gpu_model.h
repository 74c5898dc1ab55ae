// A model's decode step as a program on a GPU, and what its runs leave compared with the
// reference's.
#ifndef CONCERT_TESTS_GPU_GPU_MODEL_H_
#define CONCERT_TESTS_GPU_GPU_MODEL_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/program/pass.h"
#include "kernels/program/program_cuda.h"
#include "kernels/step/step_args.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/gpu/model_step.h"

namespace concert::test {

// With memory for `blocks` runs' bindings. What follows Make only works once that was OK.
class GpuModel {
 public:
  // `weights`: a model whose weights it shares, which outlives it; null: it has its own.
  GpuModel(CudaDevice& device, const ModelStep& model, uint32_t blocks = 1,
           const GpuModel* weights = nullptr)
      : device_(device),
        model_(model),
        shared_(weights),
        weights_(device, weights == nullptr ? model.weights().size() : 1),
        state_(device, model.state().size()),
        blocks_(device, blocks * model.block_bytes(), kGuard) {}
  GpuModel(const GpuModel&) = delete;
  GpuModel& operator=(const GpuModel&) = delete;
  // REQUIRES: nothing of it runs.
  ~GpuModel() {
    program_.reset();
    if (arena_.bytes != 0) device_.Free(arena_);
  }

  absl::Status Make() {
    if (shared_ == nullptr) {
      weights_.bytes() = model_.weights();
      weights_.Upload();
    }
    Reset();
    const ModelStep::Memory memory = {.weights = weights_at(), .state = state_.address()};
    buffers_ = model_.Buffers(memory);
    absl::StatusOr<std::unique_ptr<kernels::Program>> program =
        model_.Bind(memory, kernels::kUnplacedArena);
    if (!program.ok()) return program.status();
    const uint64_t workspace_bytes = device_.WorkspaceBytes(**program);
    absl::StatusOr<Allocation> arena =
        device_.Allocate(model_.ArenaBytes(memory) + workspace_bytes);
    if (!arena.ok()) return arena.status();
    arena_ = *arena;
    close(arena_.export_fd);
    program = model_.Bind(memory, arena_.address);
    if (!program.ok()) return program.status();
    program_ = *std::move(program);
    const Address end = program_->arena.end;
    program_->workspace = {end, end + workspace_bytes};
    if (absl::Status status = device_.Prepare(*program_); !status.ok()) return status;
    PoisonArena();
    step_workspace_ = FetchStepWorkspace();
    return absl::OkStatus();
  }

  const ModelStep& model() const { return model_; }
  const kernels::Program& program() const { return *program_; }
  kernels::PassMember member() const { return {program_.get(), model_.SourceOf(buffers_)}; }
  // Which session's runs are.
  void set_session(uint32_t session) { session_ = session; }

  // Weights' and guards' bytes are the model's; the cache is as at the beginning.
  void Reset() {
    state_.bytes() = model_.state();
    state_.Upload();
  }
  void PoisonArena() {
    const std::vector<uint8_t> poison(program_->arena.end - program_->arena.begin, kPoison);
    EXPECT_TRUE(device_.CopyToDevice(program_->arena.begin, poison.data(), poison.size()).ok());
  }
  // A block's contents before a run.
  void Put(const std::vector<uint8_t>& block, uint32_t index = 0) {
    std::copy(block.begin(), block.end(), &blocks_.bytes()[index * model_.block_bytes()]);
    EXPECT_TRUE(device_.CopyToDevice(BlockAt(index), block.data(), block.size()).ok());
  }
  Op RunOf(uint32_t block) const {
    Op op;
    op.kind = CONCERT_OP_PROGRAM;
    op.session = session_;
    op.program = model_.RunOf(*program_, BlockAt(block));
    op.work = program_->work;
    return op;
  }
  absl::Status Launch(policies::Lane lane, int sm_budget = 0, uint32_t block = 0) {
    const Op op = RunOf(block);
    const Op* const ops[] = {&op};
    return device_.Launch(
        {.planned = {.count = 1, .lane = lane, .sm_budget = sm_budget}, .ops = ops});
  }

  // What is there once runs have ended.
  std::vector<uint8_t> FetchBlock(uint32_t index = 0) {
    std::vector<uint8_t> block(model_.block_bytes());
    EXPECT_TRUE(device_.CopyToHost(block.data(), BlockAt(index), block.size()).ok());
    return block;
  }
  std::vector<uint8_t> FetchState() {
    state_.Download();
    return state_.bytes();
  }
  std::vector<uint8_t> FetchWeights() {
    weights_.Download();
    return weights_.bytes();
  }

  // Stage `index` of the step kernel's list waits for its own end from now on, which never comes.
  // REQUIRES: nothing of it runs.
  void HaveStageWaitForItself(uint32_t index) {
    const Address at = step_workspace_begin() + index * sizeof(kernels::cuda::Stage);
    kernels::cuda::Stage stage;
    EXPECT_TRUE(device_.CopyToHost(&stage, at, sizeof(stage)).ok());
    stage.wait_count = 1, stage.wait = {index, 1};
    EXPECT_TRUE(device_.CopyToDevice(at, &stage, sizeof(stage)).ok());
  }
  // As the dispatcher does when one of its runs has stalled.
  void SetStalled() { program_->has_stalled = true; }

  // Whether the step kernel has run since this was last asked, or since Make: it alone touches its
  // part of the workspace, and each of its runs leaves other words there.
  bool StepKernelHasRun() {
    std::vector<uint8_t> now = FetchStepWorkspace();
    const bool changed = now != step_workspace_;
    step_workspace_ = std::move(now);
    return changed;
  }

 private:
  Address weights_at() const {
    return shared_ == nullptr ? weights_.address() : shared_->weights_at();
  }
  Address BlockAt(uint32_t index) const { return blocks_.address() + index * model_.block_bytes(); }
  // The step kernel's part is the workspace's end; empty: there is no such part.
  Address step_workspace_begin() const {
    const auto plan = kernels::PlanStep(*program_, kernels::kStepExchangeBytes);
    if (!plan.ok() || program_->stages.empty()) return program_->workspace.end;
    return program_->workspace.end - kernels::cuda::StepWorkspaceBytes(*plan);
  }
  std::vector<uint8_t> FetchStepWorkspace() {
    const Address begin = step_workspace_begin();
    std::vector<uint8_t> bytes(program_->workspace.end - begin);
    EXPECT_TRUE(bytes.empty() || device_.CopyToHost(bytes.data(), begin, bytes.size()).ok());
    return bytes;
  }

  CudaDevice& device_;
  const ModelStep& model_;
  const GpuModel* const shared_;
  HostMirror weights_, state_, blocks_;
  std::array<kernels::BufferRange, 3> buffers_;
  Allocation arena_;
  std::unique_ptr<kernels::Program> program_;
  std::vector<uint8_t> step_workspace_;
  uint32_t session_ = 0;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_GPU_MODEL_H_
