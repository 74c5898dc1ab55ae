#include "kernels/program/node_launcher.h"

#include "kernels/program/binding_copies.h"
#include "kernels/skinny/skinny_launcher.h"

namespace concert::kernels::cuda {

NodeLauncher::NodeLauncher(LaunchContext& context, const Program& program,
                           std::span<const int8_t> owners)
    : context_(context),
      nodes_(HasSkinnyKernel(context) ? GraphNodesOf(program, owners) : NodesOfOps(program)) {}

absl::Status NodeLauncher::Launch(size_t op) {
  const GraphNode& node = nodes_[op];
  if (node.kind == GraphNode::Kind::kSkinny) {
    const bool weights_ahead = node.weights_ahead && released_;
    released_ = true;
    return LaunchSkinny(context_, node.skinny, weights_ahead);
  }
  const OpKind& kind = *FindOpKind(node.op.kind);
  return Overlapping(kind, [&] { return kind.launch(context_, node.op); });
}

absl::StatusOr<CUgraphNode> NodeLauncher::CaptureCopies() {
  context_.begins_early = released_;
  absl::StatusOr<CUgraphNode> node = BindingCopies::Capture(context_);
  context_.begins_early = false;
  released_ = HasSkinnyKernel(context_);
  return node;
}

absl::Status NodeLauncher::LaunchTogether(std::span<const Op* const> ops, const uint32_t* there) {
  const OpKind& kind = *FindOpKind(ops[0]->kind);
  return Overlapping(kind, [&] { return kind.launch_together(context_, ops, there); });
}

absl::Status NodeLauncher::Overlapping(const OpKind& kind,
                                       absl::FunctionRef<absl::Status()> launch) {
  context_.begins_early = released_ && kind.launches_overlap;
  context_.releases_next = released_ = kind.launches_overlap && HasSkinnyKernel(context_);
  absl::Status status = launch();
  context_.begins_early = context_.releases_next = false;
  return status;
}

}  // namespace concert::kernels::cuda
