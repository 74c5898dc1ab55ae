#include "kernels/program/node_launcher.h"

#include "kernels/op_table.h"
#include "kernels/skinny/skinny_launcher.h"

namespace concert::kernels::cuda {
namespace {

std::vector<GraphNode> OpsAsTheyAre(const Program& program) {
  std::vector<GraphNode> nodes(program.ops.size());
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i].op = program.ops[i];
  return nodes;
}

}  // namespace

NodeLauncher::NodeLauncher(LaunchContext& context, const Program& program,
                           std::span<const int8_t> owners)
    : context_(context),
      nodes_(HasSkinnyKernel(context) ? GraphNodesOf(program, owners) : OpsAsTheyAre(program)) {}

absl::Status NodeLauncher::Launch(size_t op) {
  const GraphNode& node = nodes_[op];
  const bool skinny = node.kind == GraphNode::Kind::kSkinny;
  const bool weights_ahead = node.weights_ahead && releases_next_;
  releases_next_ = skinny;
  return skinny ? LaunchSkinny(context_, node.skinny, weights_ahead)
                : FindOpKind(node.op.kind)->launch(context_, node.op);
}

}  // namespace concert::kernels::cuda
