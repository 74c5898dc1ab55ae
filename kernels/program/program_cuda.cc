#include "kernels/program/program_cuda.h"

#include "kernels/program/pass_graph.h"
#include "kernels/program/program_op.h"
#include "kernels/step/step_plan.h"

namespace concert::kernels::cuda {
namespace {

// Fills in the program's stages.
absl::StatusOr<std::unique_ptr<StepLauncher>> MakeStep(const LaunchContext& context,
                                                       Program& program) {
  if (context.kernels.step[0] == nullptr)
    return absl::FailedPreconditionError("this GPU has no step kernel");
  if (context.step_sms == nullptr) return absl::FailedPreconditionError("program_engine is graph");
  const absl::StatusOr<StepPlan> plan = PlanStep(program, kStepExchangeBytes);
  if (!plan.ok()) return plan.status();
  const ByteRange& workspace = program.workspace;
  absl::StatusOr<std::unique_ptr<StepLauncher>> step = StepLauncher::Open(
      context, program, *plan, {workspace.end - kStepWorkspaceBytes, workspace.end});
  if (step.ok()) program.stages = StagesOf(program, *plan);
  return step;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaProgram>> CudaProgram::Make(const LaunchContext& context,
                                                               Program& program) {
  auto made = std::make_unique<CudaProgram>();
  LaunchContext captured = context;
  captured.workspace = program.workspace.begin;
  captured.workspace_bytes = program.workspace.end - program.workspace.begin - kStepWorkspaceBytes;
  absl::StatusOr<std::unique_ptr<ProgramGraph>> graph = ProgramGraph::Capture(captured, program);
  if (!graph.ok()) return graph.status();
  made->graph_ = *std::move(graph);
  absl::StatusOr<std::unique_ptr<StepLauncher>> step = MakeStep(context, program);
  if (step.ok()) {
    made->step_ = *std::move(step);
  } else if (absl::IsFailedPrecondition(step.status()) ||
             absl::IsResourceExhausted(step.status())) {
    program.why_no_step = std::string(step.status().message());
  } else {
    return step.status();
  }
  return made;
}

absl::Status CudaProgram::Launch(const LaunchContext& context, const Op& run) {
  const Program& program = *run.program.program;
  if (step_ != nullptr && context.step_sms != nullptr && !program.has_stalled &&
      context.step_sms->Wanted(static_cast<double>(program.work.hbm_bytes))) {
    const absl::StatusOr<bool> launched = step_->Launch(context, run);
    if (!launched.ok() || *launched) return launched.status();
  }
  return graph_->Launch(context, run.program);
}

absl::Status LaunchProgram(LaunchContext& context, const Op& op) {
  return static_cast<CudaProgram&>(*op.program.program->executable).Launch(context, op);
}

absl::Status LaunchPass(const LaunchContext& context, std::span<const Op* const> runs) {
  const Pass& pass = *runs[0]->program.pass;
  return static_cast<PassGraph&>(*pass.program.executable).Launch(context, runs);
}

}  // namespace concert::kernels::cuda
