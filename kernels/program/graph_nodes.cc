#include "kernels/program/graph_nodes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/op_table.h"
#include "kernels/program/arena.h"
#include "kernels/program/compile.h"
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

// All that somebody writes, by its bounds: ops, and whoever copies a run's bindings in.
ByteSet WrittenBy(const Program& program, const std::vector<Draft>& drafts) {
  ByteSet written;
  for (const Program::Binding& binding : program.bindings)
    written.Add(binding.staged, binding.staged + binding.bytes);
  for (const Draft& draft : drafts) {
    if (draft.gone) continue;
    for (const Touch& touch : draft.touches) {
      const ByteRange bounds = touch.memory.Bounds();
      if (touch.writes) written.Add(bounds.begin, bounds.end);
    }
  }
  return written;
}

bool Overlap(const ByteSet& written, const StridedRange& memory) {
  const ByteRange bounds = memory.Bounds();
  return written.Overlaps(bounds.begin, bounds.end);
}

GraphNode NodeOf(const Draft& draft, const ByteSet& written) {
  GraphNode node;
  node.op = draft.stage.op;
  node.ops = draft.stage.ops;
  if (draft.gone) node.kind = GraphNode::Kind::kNone;
  if (draft.gone || draft.stage.kind != StageKind::kGemm) return node;
  node.kind = GraphNode::Kind::kSkinny;
  node.skinny = SkinnyOf(draft);
  const GemmArgs& gemm = node.skinny.gemm;
  node.weights_ahead =
      !Overlap(written, MatrixAt(gemm.w, gemm.n, gemm.k, gemm.ldw)) &&
      (node.skinny.gain == 0 || !Overlap(written, MatrixAt(node.skinny.gain, 1, gemm.k, 0)));
  return node;
}

// Who makes what is normalised stands some ops ahead. To look further for each of 10,000 ops would
// take long.
constexpr size_t kFarthestMaker = 64;

// Which node makes all of what node `reader` normalises, and nothing but that; nullopt: there is
// none, or it cannot do most of the norm itself.
std::optional<size_t> MakerOfNormed(size_t reader, const std::vector<Draft>& drafts,
                                    const ByteSet& written, const std::vector<GraphNode>& nodes) {
  const SkinnyGemm& norms = nodes[reader].skinny;
  const GemmArgs& gemm = norms.gemm;
  const StridedRange normed = MatrixAt(gemm.a, gemm.m, gemm.k, gemm.lda);
  const size_t first = reader - std::min(reader, kFarthestMaker);
  size_t end = reader;
  while (end > first && (drafts[end - 1].gone || !drafts[end - 1].Writes(normed))) --end;
  if (end == first || nodes[end - 1].kind != GraphNode::Kind::kSkinny) return std::nullopt;
  const GemmArgs& made = nodes[end - 1].skinny.gemm;
  const bool fits = gemm.k <= kMaxHandoverColumns && !made.gated && made.d == gemm.a &&
                    made.ldd == gemm.lda && made.m == gemm.m && made.n == gemm.k &&
                    !Overlap(written, MatrixAt(norms.gain, 1, gemm.k, 0));
  return fits ? std::optional(end - 1) : std::nullopt;
}

// Lets GEMMs norm what they make, as far as there are places for it.
void NormAhead(const std::vector<Draft>& drafts, const ByteSet& written,
               std::vector<GraphNode>& nodes) {
  struct Place {
    size_t maker, last_reader;
  };
  std::array<std::optional<Place>, kMaxHandovers> places;
  for (size_t reader = 0; reader < nodes.size(); ++reader) {
    SkinnyGemm& norms = nodes[reader].skinny;
    if (nodes[reader].kind != GraphNode::Kind::kSkinny || norms.gain == 0) continue;
    const std::optional<size_t> maker = MakerOfNormed(reader, drafts, written, nodes);
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

// Of so many rows and columns, products that nothing was folded into are the library's, which has
// tiles enough for all SMs without parts of K. One H200, us by it and by the skinny kernel, 64
// rows: 4096x4096 11.7 and 13.1, 8192x2048 10.9 and 11.8, 5632x1024 5.8 and 6.8, 28672x4096 63.6
// and 64.6; of fewer columns, 3072x1024 4.8 and 4.4, 2048x5632 10.6 and 10.1.
constexpr uint32_t kLibraryRows = 32, kLibraryColumns = 4096;

bool IsForTheLibrary(const GraphNode& node) {
  if (node.kind != GraphNode::Kind::kSkinny || node.ops.size() > 1) return false;
  if (node.takes || node.leaves) return false;
  const GemmArgs &gemm = node.skinny.gemm, &recorded = node.op.gemm;
  const bool as_recorded = gemm.a == recorded.a && gemm.c == recorded.c && gemm.d == recorded.d;
  const bool plain = gemm.EndsPlainly() && gemm.activation == Activation::kNone;
  const bool aligned = (gemm.n | gemm.ldd) % 8 == 0 && gemm.d % 16 == 0;
  return as_recorded && plain && aligned && gemm.m >= kLibraryRows && gemm.n >= kLibraryColumns;
}

}  // namespace

std::vector<GraphNode> GraphNodesOf(const Program& program, std::span<const int8_t> owners) {
  StepDraft draft(program);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const bool of_all = owners.empty() || owners[i] == Pass::kAll;
    draft.drafts().push_back(DraftOf(program.ops[i], static_cast<uint32_t>(i), of_all));
  }
  FoldIntoGemms(draft);
  FoldCopies(draft);
  std::vector<GraphNode> nodes;
  const ByteSet written = WrittenBy(program, draft.drafts());
  for (const Draft& one : draft.drafts()) nodes.push_back(NodeOf(one, written));
  NormAhead(draft.drafts(), written, nodes);
  FoldRopes(draft, owners, nodes);
  for (GraphNode& node : nodes) {
    if (IsForTheLibrary(node)) node.kind = GraphNode::Kind::kOp;
  }
  return nodes;
}

std::vector<GraphNode> NodesOfOps(const Program& program) {
  std::vector<GraphNode> nodes(program.ops.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) nodes[i].op = program.ops[i], nodes[i].ops = {i};
  return nodes;
}

HandoverSpace HandoversOf(std::span<const GraphNode> nodes) {
  HandoverSpace space;
  uint64_t columns = 0;
  for (const GraphNode& node : nodes) {
    if (!node.leaves) continue;
    space.count = std::max<uint64_t>(space.count, *node.leaves + 1u);
    columns = std::max<uint64_t>(columns, node.skinny.gemm.n);
  }
  // As many tiles as there can be, which have 32 columns.
  space.rows_bytes = AlignedInArena(kMaxSkinnyRows * columns * kStepElementBytes);
  space.squares_bytes = AlignedInArena(kMaxSkinnyRows * sizeof(float) * ((columns + 31) / 32));
  return space;
}

uint64_t LaunchBytesOf(std::span<const GraphNode> nodes, std::span<const int8_t> owners,
                       size_t members) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind != GraphNode::Kind::kOp) continue;
    const auto bytes_of = FindOpKind(nodes[i].op.kind)->workspace_bytes;
    if (bytes_of == nullptr) continue;
    const bool of_all = owners.empty() || owners[i] == Pass::kAll;
    const uint64_t wanted = AlignedInArena(bytes_of(nodes[i].op)) * (of_all ? 1 : members);
    bytes = std::max(bytes, std::min(wanted, kMostWorkspaceBytes));
  }
  return bytes;
}

}  // namespace concert::kernels
