#include "kernels/program/node_ropes.h"

#include <algorithm>

#include "kernels/program/pass.h"

namespace concert::kernels {
namespace {

// The rotary embeddings that follow op `gemm` directly: the program's, or one of each member.
std::span<Draft> RopesBehind(StepDraft& drafts, std::span<const int8_t> owners, size_t gemm) {
  std::vector<Draft>& all = drafts.drafts();
  const size_t first = gemm + 1;
  size_t end = first;
  const auto is_next = [&] {
    return end < all.size() && !all[end].gone && all[end].stage.op.kind == CONCERT_OP_ROPE_APPEND &&
           (owners.empty() ? end == first : owners[end] == static_cast<int8_t>(end - first));
  };
  while (is_next()) ++end;
  return {all.data() + first, end - first};
}

// All but where operands lie.
bool AreAlike(RopeAppendArgs a, RopeAppendArgs b) {
  for (RopeAppendArgs* one : {&a, &b}) {
    one->q = one->k = one->v = one->positions = one->slots = one->cos_sin = 0;
    one->cache.k = one->cache.v = 0;
  }
  return a == b;
}

// Whether its heads are those rows of what the GEMM makes, in a form that the kernel knows.
bool FitsRows(const RopeAppendArgs& rope, const GemmArgs& gemm, uint64_t first_row) {
  const KvCacheArgs& cache = rope.cache;
  return AreHeads(rope, gemm.d + first_row * gemm.ldd * kStepElementBytes, gemm.n, gemm.ldd) &&
         cache.dtype == Dtype::kBf16 && (rope.head_dim == 64 || rope.head_dim == 128) &&
         rope.rotary_dim % 8 == 0 && (gemm.d | gemm.bias | cache.k | cache.v) % 8 == 0 &&
         (gemm.ldd | cache.page_stride | cache.token_stride | cache.head_stride) % 4 == 0;
}

// What one member appends, no other reads.
bool AppendsForItself(const Draft& rope, std::span<const Draft> others) {
  return std::none_of(rope.touches.begin(), rope.touches.end(), [&](const Touch& touch) {
    return touch.writes && touch.field != CONCERT_FIELD_Q &&
           std::any_of(others.begin(), others.end(),
                       [&](const Draft& other) { return other.Reads(touch.memory); });
  });
}

SkinnyRope RopeOf(std::span<const Draft> ropes) {
  SkinnyRope rope = {};
  rope.op = ropes[0].stage.op.rope_append;
  for (const Draft& one : ropes) {
    const RopeAppendArgs& args = one.stage.op.rope_append;
    rope.places[rope.parts++] = {args.positions, args.slots, args.cos_sin, args.cache.k,
                                 args.cache.v};
  }
  return rope;
}

}  // namespace

void FoldRopes(StepDraft& drafts, std::span<const int8_t> owners, std::vector<GraphNode>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const GemmArgs& gemm = nodes[i].skinny.gemm;
    if (nodes[i].kind != GraphNode::Kind::kSkinny || !IsPlain(drafts.drafts()[i].stage.gemm))
      continue;
    const std::span<Draft> ropes = RopesBehind(drafts, owners, i);
    if (ropes.empty() || ropes.size() > SkinnyRope::kMaxParts) continue;
    const RopeAppendArgs& first = ropes[0].stage.op.rope_append;
    const StridedRange made = MatrixAt(gemm.d, gemm.m, gemm.n, gemm.ldd);
    const auto fits = [&](Draft& draft) {
      const auto row = static_cast<uint64_t>(&draft - ropes.data()) * first.rows;
      const RopeAppendArgs& rope = draft.stage.op.rope_append;
      return AreAlike(rope, first) && FitsRows(rope, gemm, row) &&
             MayRotate(drafts, drafts.drafts()[i], draft, made) && AppendsForItself(draft, ropes);
    };
    if (first.rows * ropes.size() != gemm.m || !drafts.IsIntermediate(made) ||
        !std::all_of(ropes.begin(), ropes.end(), fits)) {
      continue;
    }
    nodes[i].skinny.rope = RopeOf(ropes);
    nodes[i].ops.push_back(static_cast<uint32_t>(i + 1));
    for (size_t part = 0; part < ropes.size(); ++part)
      nodes[i + 1 + part].kind = GraphNode::Kind::kNone;
  }
}

}  // namespace concert::kernels
