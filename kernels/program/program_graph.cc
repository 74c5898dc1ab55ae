#include "kernels/program/program_graph.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/program/binding_copies.h"
#include "kernels/program/node_launcher.h"

namespace concert::kernels::cuda {
namespace {

absl::Status LaunchNodes(NodeLauncher& nodes, const Program& program) {
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

uint64_t ProgramGraph::WorkspaceBytes(const LaunchContext& context, const Program& program) {
  const std::vector<GraphNode> nodes = NodesOn(context, program);
  return LaunchBytesOf(nodes) + HandoversOf(nodes).bytes();
}

absl::StatusOr<std::unique_ptr<ProgramGraph>> ProgramGraph::Capture(LaunchContext& context,
                                                                    const Program& program) {
  const Driver& driver = context.api.driver;
  std::unique_ptr<ProgramGraph> made(new ProgramGraph(driver, context.gpu));
  // Relaxed: what other threads do meanwhile is no part of it and stays allowed.
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuStreamBeginCapture, context.stream,
                                 CU_STREAM_CAPTURE_MODE_RELAXED);
  const absl::Status launched = made->LaunchAll(context, program);
  const CUresult ended = driver.cuStreamEndCapture(context.stream, &made->graph_);
  if (!launched.ok()) return launched;
  if (ended != CUDA_SUCCESS) return driver.ToStatus(ended, "cuStreamEndCapture", context.gpu);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuGraphInstantiateWithFlags,
                                 &made->executable_, made->graph_, 0);
  return made;
}

ProgramGraph::~ProgramGraph() {
  if (executable_ != nullptr) driver_.cuGraphExecDestroy(executable_);
  if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
}

absl::Status ProgramGraph::LaunchAll(LaunchContext& context, const Program& program) {
  NodeLauncher nodes(context, program);
  const auto& bindings = program.bindings;
  const bool writes = std::any_of(bindings.begin(), bindings.end(),
                                  [](const Program::Binding& binding) { return binding.written; });
  absl::Status status;
  if (!bindings.empty()) status = nodes.CaptureCopies(in_);
  if (status.ok()) status = LaunchNodes(nodes, program);
  if (status.ok() && writes) status = nodes.CaptureCopies(out_);
  return status;
}

absl::Status ProgramGraph::Launch(const LaunchContext& context, const ProgramArgs& run) const {
  for (const auto& [way, node] : {std::pair(Way::kIn, in_), {Way::kOut, out_}}) {
    if (node == nullptr) continue;
    BindingCopies copies(way);
    copies.Add(run);
    if (absl::Status status = copies.Set(context, executable_, node); !status.ok()) return status;
  }
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuGraphLaunch, executable_, context.stream);
  return absl::OkStatus();
}

}  // namespace concert::kernels::cuda
