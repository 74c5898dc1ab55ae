#include "kernels/program/program_graph.h"

#include "absl/strings/str_cat.h"
#include "kernels/program/binding_copies.h"
#include "kernels/program/node_launcher.h"

namespace concert::kernels::cuda {
namespace {

absl::Status LaunchNodes(LaunchContext& context, const Program& program) {
  NodeLauncher nodes(context, program);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (!nodes.IsLaunched(i)) continue;
    const absl::Status status = nodes.Launch(i);
    if (status.ok()) continue;
    return {status.code(), absl::StrCat("op ", i, ", ", concert_op_kind_name(program.ops[i].kind),
                                        ": ", status.message())};
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProgramGraph>> ProgramGraph::Capture(LaunchContext& context,
                                                                    const Program& program) {
  const Driver& driver = context.api.driver;
  std::unique_ptr<ProgramGraph> made(new ProgramGraph(driver, context.gpu));
  // Relaxed: what other threads do meanwhile is no part of it and stays allowed.
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuStreamBeginCapture, context.stream,
                                 CU_STREAM_CAPTURE_MODE_RELAXED);
  const absl::Status launched = LaunchNodes(context, program);
  CUgraph graph = nullptr;
  const CUresult ended = driver.cuStreamEndCapture(context.stream, &graph);
  CUresult instantiated = CUDA_ERROR_INVALID_VALUE;
  if (launched.ok() && ended == CUDA_SUCCESS)
    instantiated = driver.cuGraphInstantiateWithFlags(&made->executable_, graph, 0);
  if (graph != nullptr) driver.cuGraphDestroy(graph);
  if (!launched.ok()) return launched;
  if (ended != CUDA_SUCCESS) return driver.ToStatus(ended, "cuStreamEndCapture", context.gpu);
  if (instantiated != CUDA_SUCCESS)
    return driver.ToStatus(instantiated, "cuGraphInstantiateWithFlags", context.gpu);
  return made;
}

ProgramGraph::~ProgramGraph() {
  if (executable_ != nullptr) driver_.cuGraphExecDestroy(executable_);
}

// What fails in front of the graph has touched nothing but the program's own arena. Where the
// copies behind it fail, ops have run, and what they write besides is there, though the run is said
// to have failed: what was enqueued cannot be taken back.
absl::Status ProgramGraph::Launch(const LaunchContext& context, const ProgramArgs& run) const {
  BindingCopies in(Way::kIn), out(Way::kOut);
  in.Add(run);
  out.Add(run);
  if (absl::Status status = in.Launch(context); !status.ok()) return status;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuGraphLaunch, executable_, context.stream);
  return out.Launch(context);
}

}  // namespace concert::kernels::cuda
