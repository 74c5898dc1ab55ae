#include "kernels/program/node_launcher.h"

#include "kernels/program/binding_copies.h"
#include "kernels/skinny/skinny_launcher.h"

namespace concert::kernels::cuda {
namespace {

// Dependent launches exist on compute capability 9.0 and later; the skinny kernel, on 9.0.
bool LaunchesMayOverlap(const LaunchContext& context) { return HasSkinnyKernel(context); }

}  // namespace

std::vector<GraphNode> NodesOn(const LaunchContext& context, const Program& program,
                               std::span<const int8_t> owners) {
  return HasSkinnyKernel(context) ? GraphNodesOf(program, owners) : NodesOfOps(program);
}

NodeLauncher::NodeLauncher(LaunchContext& context, const Program& program,
                           std::span<const int8_t> owners, const uint32_t* there)
    : context_(context), there_(there), nodes_(NodesOn(context, program, owners)) {
  const HandoverSpace space = HandoversOf(nodes_);
  for (size_t i = 0; i < space.count; ++i) {
    context_.workspace_bytes -= space.rows_bytes + space.squares_bytes;
    handovers_[i].rows = context_.workspace + context_.workspace_bytes;
    handovers_[i].squares = handovers_[i].rows + space.rows_bytes;
  }
}

absl::Status NodeLauncher::LaunchSkinnyNode(const GraphNode& node) {
  const absl::StatusOr<SkinnyTiling> tiling = TilingOn(context_, node.skinny);
  if (!tiling.ok()) return tiling.status();
  SkinnyGemm skinny = node.skinny;
  skinny.rope.there = there_;
  if (node.takes) skinny.a_normed = handovers_[*node.takes];
  if (node.leaves) {
    handovers_[*node.leaves].tiles = tiling->TilesOf(skinny.gemm.n);
    skinny.d_normed = handovers_[*node.leaves];
  }
  const bool weights_ahead = node.weights_ahead && behind_kernel_;
  behind_kernel_ = true;
  return LaunchSkinny(context_, skinny, *tiling, weights_ahead);
}

absl::Status NodeLauncher::Launch(size_t op) {
  const GraphNode& node = nodes_[op];
  if (node.kind == GraphNode::Kind::kSkinny) return LaunchSkinnyNode(node);
  const OpKind& kind = *FindOpKind(node.op.kind);
  return Overlapping(kind, [&] { return kind.launch(context_, node.op); });
}

absl::Status NodeLauncher::CaptureCopies(CUgraphNode& node) {
  context_.begins_early = behind_kernel_;
  absl::Status status = BindingCopies::Capture(context_, node);
  context_.begins_early = false;
  behind_kernel_ = LaunchesMayOverlap(context_);
  return status;
}

absl::Status NodeLauncher::LaunchTogether(std::span<const Op* const> ops) {
  const OpKind& kind = *FindOpKind(ops[0]->kind);
  return Overlapping(kind, [&] { return kind.launch_together(context_, ops, there_); });
}

absl::Status NodeLauncher::Overlapping(const OpKind& kind,
                                       absl::FunctionRef<absl::Status()> launch) {
  context_.begins_early = behind_kernel_ && kind.launches_overlap;
  context_.releases_next = kind.launches_overlap && LaunchesMayOverlap(context_);
  absl::Status status = launch();
  behind_kernel_ = kind.kind != CONCERT_OP_COPY && LaunchesMayOverlap(context_);
  context_.begins_early = context_.releases_next = false;
  return status;
}

}  // namespace concert::kernels::cuda
