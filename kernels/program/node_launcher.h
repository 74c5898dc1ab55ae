// Launches what a program's graph is captured of, node by node.
#ifndef CONCERT_KERNELS_PROGRAM_NODE_LAUNCHER_H_
#define CONCERT_KERNELS_PROGRAM_NODE_LAUNCHER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/op_table.h"
#include "kernels/program/graph_nodes.h"

namespace concert::kernels::cuda {

// As GraphNodesOf; where the GPU has no skinny kernel, of ops as they are.
std::vector<GraphNode> NodesOn(const LaunchContext& context, const Program& program,
                               std::span<const int8_t> owners = {});

class NodeLauncher {
 public:
  // Of NodesOn. `there`: of a pass, as OpKind::launch_together has it. The context and the program
  // must outlive it. Takes the nodes' handovers from the end of the context's workspace.
  NodeLauncher(LaunchContext& context, const Program& program, std::span<const int8_t> owners = {},
               const uint32_t* there = nullptr);

  bool IsLaunched(size_t op) const { return nodes_[op].IsLaunched(); }
  // Enqueues it on the context's stream. REQUIRES: IsLaunched(op).
  absl::Status Launch(size_t op);
  // The same of copies of bindings (BindingCopies::Capture).
  absl::Status CaptureCopies(CUgraphNode& node);
  // The same of one op of several programs: OpKind::launch_together.
  absl::Status LaunchTogether(std::span<const Op* const> ops);
  // What is launched next does not follow the last launch alone.
  void Interrupt() { behind_kernel_ = false; }

 private:
  absl::Status LaunchSkinnyNode(const GraphNode& node);
  // Launches of a kind, as far as they overlap those ahead and behind.
  absl::Status Overlapping(const OpKind& kind, absl::FunctionRef<absl::Status()> launch);

  LaunchContext& context_;
  const uint32_t* const there_;
  std::vector<GraphNode> nodes_;
  std::array<NormedAhead, kMaxHandovers> handovers_ = {};
  // The last launch was a kernel, behind which the next one may line up before it has ended: at the
  // latest when its blocks have, which saves what a launch takes to begin.
  bool behind_kernel_ = false;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_PROGRAM_NODE_LAUNCHER_H_
