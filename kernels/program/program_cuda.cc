#include "kernels/program/program_cuda.h"

#include "absl/strings/str_cat.h"
#include "kernels/program/pass_graph.h"
#include "kernels/program/program_op.h"
#include "kernels/step/step_plan.h"

namespace concert::kernels::cuda {
namespace {

// As PlanStep. RESOURCE_EXHAUSTED: it would take too much memory.
absl::StatusOr<StepPlan> PlanFor(const LaunchContext& context, const Program& program) {
  if (context.kernels.step[0] == nullptr)
    return absl::FailedPreconditionError("this GPU has no step kernel");
  if (context.step_sms == nullptr) return absl::FailedPreconditionError("program_engine is graph");
  absl::StatusOr<StepPlan> plan = PlanStep(program, kStepExchangeBytes);
  if (!plan.ok()) return plan;
  if (const uint64_t bytes = StepWorkspaceBytes(*plan); bytes > kMostStepWorkspaceBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("its list of ", plan->stages.size(),
                                                     " stages takes ", bytes, " bytes; at most ",
                                                     kMostStepWorkspaceBytes, " are supported"));
  }
  return plan;
}

}  // namespace

uint64_t CudaProgram::WorkspaceBytes(const LaunchContext& context, const Program& program) {
  const absl::StatusOr<StepPlan> plan = PlanFor(context, program);
  return ProgramGraph::WorkspaceBytes(context, program) +
         (plan.ok() ? StepWorkspaceBytes(*plan) : 0);
}

absl::StatusOr<std::unique_ptr<CudaProgram>> CudaProgram::Make(const LaunchContext& context,
                                                               Program& program) {
  const absl::StatusOr<StepPlan> plan = PlanFor(context, program);
  const Address begin = program.workspace.begin;
  const Address of_step = program.workspace.end - (plan.ok() ? StepWorkspaceBytes(*plan) : 0);
  auto made = std::make_unique<CudaProgram>();
  LaunchContext captured = context;
  captured.workspace = begin, captured.workspace_bytes = of_step - begin;
  if (captured.workspace_bytes != ProgramGraph::WorkspaceBytes(context, program))
    return absl::InternalError("its workspace was measured for another program");
  absl::StatusOr<std::unique_ptr<ProgramGraph>> graph = ProgramGraph::Capture(captured, program);
  if (!graph.ok()) return graph.status();
  made->graph_ = *std::move(graph);
  if (!plan.ok()) {
    program.why_no_step = std::string(plan.status().message());
    return made;
  }
  absl::StatusOr<std::unique_ptr<StepLauncher>> step =
      StepLauncher::Open(context, program, *plan, of_step);
  if (step.ok()) {
    made->step_ = *std::move(step);
    program.stages = StagesOf(program, *plan);
  } else if (absl::IsFailedPrecondition(step.status())) {
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
