#include "kernels/program/graph_nodes.h"

#include <algorithm>

#include "kernels/program/pass.h"
#include "kernels/step/step_draft.h"

namespace concert::kernels {
namespace {

Draft DraftOf(const Op& op, uint32_t index, bool may_be_skinny) {
  Draft draft;
  draft.stage.op = op;
  draft.stage.ops = {index};
  draft.stage.kind = StageKind::kRows;  // anything but a GEMM
  draft.touches = TouchesOf(op);
  if (op.kind != CONCERT_OP_GEMM || !may_be_skinny || !SkinnyObjection(op.gemm).empty())
    return draft;
  draft.stage.kind = StageKind::kGemm;
  draft.stage.gemm = StepGemmOf(op.gemm);
  return draft;
}

// The op's GEMM with what was folded into it.
SkinnyGemm SkinnyOf(const Draft& draft) {
  const StepGemm& folded = draft.stage.gemm;
  SkinnyGemm skinny = {draft.stage.op.gemm, folded.gain, folded.epsilon};
  GemmArgs& gemm = skinny.gemm;
  gemm.a = folded.a, gemm.lda = folded.lda;
  gemm.c = folded.c, gemm.ldc = folded.ldc;
  gemm.d = folded.d, gemm.ldd = folded.ldd;
  gemm.beta = folded.beta;
  gemm.activation = folded.activation;
  gemm.gated = folded.epilogue != StepEpilogue::kStore;
  gemm.interleaved = folded.epilogue == StepEpilogue::kGatedNeighbours;
  return skinny;
}

bool SomebodyWrites(const std::vector<Draft>& drafts, const StridedRange& memory) {
  return std::any_of(drafts.begin(), drafts.end(),
                     [&](const Draft& draft) { return !draft.gone && draft.Writes(memory); });
}

GraphNode NodeOf(const Draft& draft, const std::vector<Draft>& drafts) {
  GraphNode node;
  node.op = draft.stage.op;
  node.ops = draft.stage.ops;
  if (draft.gone) node.kind = GraphNode::Kind::kNone;
  if (draft.gone || draft.stage.kind != StageKind::kGemm) return node;
  node.kind = GraphNode::Kind::kSkinny;
  node.skinny = SkinnyOf(draft);
  const GemmArgs& gemm = node.skinny.gemm;
  node.weights_ahead =
      !SomebodyWrites(drafts, MatrixAt(gemm.w, gemm.n, gemm.k, gemm.ldw)) &&
      (node.skinny.gain == 0 || !SomebodyWrites(drafts, MatrixAt(node.skinny.gain, 1, gemm.k, 0)));
  return node;
}

}  // namespace

std::vector<GraphNode> GraphNodesOf(const Program& program, std::span<const int8_t> owners) {
  StepDraft draft(program);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const bool of_all = owners.empty() || owners[i] == Pass::kAll;
    draft.drafts().push_back(DraftOf(program.ops[i], static_cast<uint32_t>(i), of_all));
  }
  FoldIntoGemms(draft);
  std::vector<GraphNode> nodes;
  for (const Draft& one : draft.drafts()) nodes.push_back(NodeOf(one, draft.drafts()));
  return nodes;
}

std::vector<GraphNode> NodesOfOps(const Program& program) {
  std::vector<GraphNode> nodes(program.ops.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) nodes[i].op = program.ops[i], nodes[i].ops = {i};
  return nodes;
}

}  // namespace concert::kernels
