// Attention that reads ahead. A step appends a token or so to each sequence and reads all the
// others, which have been there since steps before: loading them need not wait for q, k and v. So
// these come through the exchange, and what has been appended is taken from there, too.
#include <algorithm>

#include "kernels/kv_cache_operand.h"
#include "kernels/step/step_draft.h"

namespace concert::kernels {
namespace {

bool SameCache(const KvCacheArgs& a, const KvCacheArgs& b) {
  return a.k == b.k && a.v == b.v && a.page_stride == b.page_stride && a.pages == b.pages &&
         a.page_size == b.page_size && a.token_stride == b.token_stride &&
         a.head_stride == b.head_stride;
}

// Whether the draft attends with q's that the GEMM makes, to the cache that it appends to.
bool Attends(const Draft& draft, const StepGemm& gemm) {
  if (draft.stage.kind != StageKind::kAttention) return false;
  const AttentionDecodeArgs& op = draft.stage.op.attention_decode;
  const RopeAppendArgs& rope = gemm.rope;
  return op.q == gemm.d && op.q_stride == gemm.ldd && op.rows == gemm.m &&
         op.q_heads == rope.q_heads && op.kv_heads == rope.kv_heads &&
         op.head_dim == rope.head_dim && SameCache(op.cache, rope.cache);
}

// Whether what attention needs besides q is there as soon as bindings have been copied in: only
// then may it be read at any time. `maker` appends, which does not count.
bool IsThereFromTheStart(const std::vector<Draft>& drafts, size_t attention, size_t maker) {
  for (const Draft* reader : {&drafts[attention], &drafts[maker]}) {
    for (const Touch& touch : reader->touches) {
      const bool is_table = IsCacheTable(touch.field);
      if (!is_table && !IsOfKvCache(touch.field)) continue;
      for (size_t i = kTablesStage + 1; i < attention; ++i) {
        if ((is_table || i != maker) && drafts[i].Writes(touch.memory)) return false;
      }
    }
  }
  return true;
}

void ExchangeHeadsOf(std::vector<Draft>& drafts, size_t maker, ExchangeSpace& space) {
  StepGemm& gemm = drafts[maker].stage.gemm;
  for (size_t i = maker + 1; i < drafts.size(); ++i) {
    Draft& draft = drafts[i];
    if (Attends(draft, gemm)) {
      if (!IsThereFromTheStart(drafts, i, maker)) return;
      const std::optional<Address> begin = space.Take(gemm.m, gemm.n);
      if (!begin.has_value()) return;
      gemm.exchanged = *begin;
      gemm.stores_exchanged = true;
      draft.stage.op.attention_decode.q = *begin;
      draft.stage.op.attention_decode.q_stride = gemm.n;
      draft.stage.heads_from = static_cast<uint32_t>(maker);
      draft.stage.looks_for.push_back(static_cast<uint32_t>(maker));
      draft.touches.erase(TouchOf(draft, CONCERT_FIELD_Q));
      // Which tokens it takes from there, slots say: who writes them next waits for it, too.
      const auto slots = TouchOf(drafts[maker], CONCERT_FIELD_SLOTS);
      if (slots != drafts[maker].touches.end()) draft.touches.push_back(*slots);
      return;
    }
    if (draft.Writes(MatrixAt(gemm.d, gemm.m, gemm.n, gemm.ldd))) return;
  }
}

}  // namespace

void ExchangeHeads(StepDraft& draft, ExchangeSpace& space) {
  std::vector<Draft>& drafts = draft.drafts();
  for (size_t i = 0; i < drafts.size(); ++i) {
    const PlannedStage& stage = drafts[i].stage;
    if (stage.kind == StageKind::kGemm && stage.gemm.epilogue == StepEpilogue::kRope)
      ExchangeHeadsOf(drafts, i, space);
  }
}

}  // namespace concert::kernels
