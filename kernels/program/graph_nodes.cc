#include "kernels/program/graph_nodes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/program/node_ropes.h"
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

// Which node makes all of what node `reader` normalises, and nothing but that; nullopt: there is
// none, or it cannot do most of the norm itself.
std::optional<size_t> MakerOfNormed(size_t reader, const std::vector<Draft>& drafts,
                                    const std::vector<GraphNode>& nodes) {
  const SkinnyGemm& norms = nodes[reader].skinny;
  const GemmArgs& gemm = norms.gemm;
  const StridedRange normed = MatrixAt(gemm.a, gemm.m, gemm.k, gemm.lda);
  size_t end = reader;
  while (end > 0 && (drafts[end - 1].gone || !drafts[end - 1].Writes(normed))) --end;
  if (end == 0 || nodes[end - 1].kind != GraphNode::Kind::kSkinny) return std::nullopt;
  const GemmArgs& made = nodes[end - 1].skinny.gemm;
  const bool fits = gemm.k <= kMaxHandoverColumns && !made.gated && made.d == gemm.a &&
                    made.ldd == gemm.lda && made.m == gemm.m && made.n == gemm.k &&
                    !SomebodyWrites(drafts, MatrixAt(norms.gain, 1, gemm.k, 0));
  return fits ? std::optional(end - 1) : std::nullopt;
}

// Lets GEMMs norm what they make, as far as there are places for it.
void NormAhead(const std::vector<Draft>& drafts, std::vector<GraphNode>& nodes) {
  struct Place {
    size_t maker, last_reader;
  };
  std::array<std::optional<Place>, kMaxHandovers> places;
  for (size_t reader = 0; reader < nodes.size(); ++reader) {
    SkinnyGemm& norms = nodes[reader].skinny;
    if (nodes[reader].kind != GraphNode::Kind::kSkinny || norms.gain == 0) continue;
    const std::optional<size_t> maker = MakerOfNormed(reader, drafts, nodes);
    if (!maker) continue;
    const bool is_left = nodes[*maker].leaves.has_value();
    const auto place = std::find_if(places.begin(), places.end(), [&](const auto& one) {
      return is_left ? one && one->maker == *maker : !one || one->last_reader < *maker;
    });
    if (place == places.end() || (is_left && nodes[*maker].skinny.d_gain != norms.gain)) continue;
    *place = {*maker, reader};
    nodes[reader].takes = nodes[*maker].leaves = static_cast<uint8_t>(place - places.begin());
    nodes[*maker].skinny.d_gain = std::exchange(norms.gain, 0);
  }
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
  NormAhead(draft.drafts(), nodes);
  FoldRopes(draft, owners, nodes);
  return nodes;
}

std::vector<GraphNode> NodesOfOps(const Program& program) {
  std::vector<GraphNode> nodes(program.ops.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) nodes[i].op = program.ops[i], nodes[i].ops = {i};
  return nodes;
}

}  // namespace concert::kernels
