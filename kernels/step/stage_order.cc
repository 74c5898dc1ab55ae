#include "kernels/step/stage_order.h"

namespace concert::kernels {
namespace {

// Whether each block waits for what the stage waits for, however many there are.
bool AllBlocksWait(const PlannedStage& stage) {
  if (stage.kind == StageKind::kRows) return false;
  return stage.kind != StageKind::kGemm || stage.gemm.units() >= kMaxStepBlocks;
}

}  // namespace

void StageOrder::Begin(size_t i, const PlannedStage& stage) {
  done_[i] = done_for_all_;
  visible_[i] = visible_to_all_;
  if (stage.a_from.has_value()) AddWith(done_[i], done_[*stage.a_from], *stage.a_from);
  if (stage.heads_from.has_value()) Add(done_[i], done_[*stage.heads_from], *stage.heads_from);
}

void StageOrder::Wait(size_t i, size_t j) {
  AddWith(done_[i], done_[j], j);
  AddWith(visible_[i], visible_[j], j);
}

void StageOrder::End(size_t i, const PlannedStage& stage) {
  if (!AllBlocksWait(stage)) return;
  visible_to_all_ = visible_[i];
  // Not every block has an item of attention, and so reads what it looks for.
  Add(done_for_all_, stage.heads_from.has_value() ? visible_[i] : done_[i], i);
}

// Those of `others`, which belong to stage `another`.
void StageOrder::Add(Stages& stages, const Stages& others, size_t another) {
  for (size_t k = 0; k < another; ++k) stages[k] = stages[k] || others[k];
}
void StageOrder::AddWith(Stages& stages, const Stages& others, size_t another) {
  Add(stages, others, another);
  stages[another] = true;
}

}  // namespace concert::kernels
