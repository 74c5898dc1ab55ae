// Which results go through the exchange: those of GEMMs and attention that GEMMs read as their A or
// C, whole and as they are.
#include <algorithm>

#include "kernels/step/step_draft.h"

namespace concert::kernels {
namespace {

struct Matrix {
  uint32_t rows = 0, columns = 0;
  concert_field field = CONCERT_FIELD_NONE;  // of the touch that writes it
};

// What a draft makes that could be exchanged: rows of whole words. No rows: nothing.
Matrix ResultOf(const Draft& draft) {
  const PlannedStage& stage = draft.stage;
  if (stage.kind == StageKind::kAttention) {
    const AttentionDecodeArgs& op = stage.op.attention_decode;
    return {op.rows, static_cast<uint32_t>(op.q_heads) * op.head_dim, CONCERT_FIELD_OUT};
  }
  if (stage.kind != StageKind::kGemm || stage.gemm.epilogue == StepEpilogue::kRope) return {};
  const uint32_t columns = ColumnsOfD(stage.gemm);
  if (columns % 2 != 0) return {};
  return {stage.gemm.m, columns, CONCERT_FIELD_D};
}

class Exchanger {
 public:
  Exchanger(StepDraft& drafts, ExchangeSpace& space)
      : all_(drafts), drafts_(drafts.drafts()), space_(space) {}

  void Run() {
    for (size_t i = 0; i < drafts_.size(); ++i) ExchangeResultOf(i);
    // Once it is known who still reads memory.
    for (size_t i = 0; i < drafts_.size(); ++i) DropDeadStore(i);
  }

 private:
  void ExchangeResultOf(size_t index) {
    Draft& maker = drafts_[index];
    const Matrix matrix = ResultOf(maker);
    if (matrix.rows == 0) return;
    const auto made = TouchOf(maker, matrix.field);
    if (made == maker.touches.end()) return;
    const StridedRange memory = made->memory;
    if (maker.stage.kind == StageKind::kAttention && !IsOnlyReadAsA(index, memory, matrix)) return;
    if (!IsReadBehind(index, memory, matrix)) return;
    const std::optional<Address> begin = space_.Take(matrix.rows, matrix.columns);
    if (!begin.has_value()) return;
    for (size_t i = index + 1; i < drafts_.size(); ++i) {
      LetRead(i, index, memory, matrix, *begin);
      if (drafts_[i].Writes(memory)) break;
    }
    if (maker.stage.kind == StageKind::kAttention) {
      maker.stage.exchanges = true;
      maker.stage.op.attention_decode.out = *begin;
      maker.stage.op.attention_decode.out_stride = matrix.columns;
      maker.touches.erase(made);
    } else {
      maker.stage.gemm.exchanged = *begin;
      maker.stage.gemm.stores_exchanged = true;
    }
  }

  // Whether a draft's A, or its C, is what lies there as this matrix.
  static bool ReadsAsA(Draft& draft, const StridedRange& memory, const Matrix& matrix) {
    const StepGemm& gemm = draft.stage.gemm;
    const auto a = TouchOf(draft, CONCERT_FIELD_A);
    return draft.stage.kind == StageKind::kGemm && a != draft.touches.end() &&
           a->memory == memory && gemm.m == matrix.rows && gemm.k == matrix.columns;
  }
  static bool ReadsAsC(Draft& draft, const StridedRange& memory, const Matrix& matrix) {
    const StepGemm& gemm = draft.stage.gemm;
    const auto c = TouchOf(draft, CONCERT_FIELD_C);
    return draft.stage.kind == StageKind::kGemm && c != draft.touches.end() &&
           c->memory == memory && gemm.m == matrix.rows && gemm.n == matrix.columns &&
           gemm.epilogue == StepEpilogue::kStore;
  }

  bool IsReadBehind(size_t index, const StridedRange& memory, const Matrix& matrix) {
    for (size_t i = index + 1; i < drafts_.size(); ++i) {
      if (ReadsAsA(drafts_[i], memory, matrix) || ReadsAsC(drafts_[i], memory, matrix)) return true;
      if (drafts_[i].Writes(memory)) return false;
    }
    return false;
  }

  // Has draft `index` read A or C, if they are draft `maker`'s result, from the exchange.
  void LetRead(size_t index, size_t maker, const StridedRange& memory, const Matrix& matrix,
               Address begin) {
    Draft& draft = drafts_[index];
    StepGemm& gemm = draft.stage.gemm;
    if (ReadsAsA(draft, memory, matrix)) {
      gemm.a = begin, gemm.lda = matrix.columns, gemm.a_exchanged = true;
      draft.touches.erase(TouchOf(draft, CONCERT_FIELD_A));
      draft.stage.a_from = static_cast<uint32_t>(maker);
      draft.stage.looks_for.push_back(static_cast<uint32_t>(maker));
    }
    if (ReadsAsC(draft, memory, matrix)) {
      gemm.c = begin, gemm.ldc = matrix.columns, gemm.c_exchanged = true;
      draft.stage.looks_for.push_back(static_cast<uint32_t>(maker));
      draft.touches.erase(TouchOf(draft, CONCERT_FIELD_C));
    }
  }

  // Attention has one place to write to: all that read it must read the exchange.
  bool IsOnlyReadAsA(size_t index, const StridedRange& memory, const Matrix& matrix) {
    if (!all_.IsIntermediate(memory)) return false;
    for (size_t i = index + 1; i < drafts_.size(); ++i) {
      Draft& draft = drafts_[i];
      const auto reads =
          std::count_if(draft.touches.begin(), draft.touches.end(),
                        [&](const Touch& t) { return t.reads && Overlap(t.memory, memory); });
      if (reads > (ReadsAsA(draft, memory, matrix) ? 1 : 0)) return false;
      if (draft.Writes(memory)) return true;
    }
    return true;
  }

  // What is read from the exchange alone is stored there alone.
  void DropDeadStore(size_t index) {
    Draft& draft = drafts_[index];
    if (draft.stage.kind != StageKind::kGemm || !draft.stage.gemm.stores_exchanged) return;
    const auto made = TouchOf(draft, CONCERT_FIELD_D);
    const StridedRange memory = made->memory;
    if (!all_.IsDeadBehind(index, memory, made->buffer)) return;
    if (!all_.IsIntermediate(memory) && !IsOverwritten(index, memory)) return;
    draft.touches.erase(made);
    draft.stage.gemm.stores_d = false;
  }

  bool IsOverwritten(size_t index, const StridedRange& memory) const {
    for (size_t i = index + 1; i < drafts_.size(); ++i) {
      for (const Touch& touch : drafts_[i].touches) {
        if (touch.writes && !touch.reads && touch.memory == memory) return true;
      }
    }
    return false;
  }

  StepDraft& all_;
  std::vector<Draft>& drafts_;
  ExchangeSpace& space_;
};

}  // namespace

void Exchange(StepDraft& drafts, ExchangeSpace& space) { Exchanger(drafts, space).Run(); }

}  // namespace concert::kernels
