#include "kernels/step/step_check.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/kv_cache_operand.h"
#include "kernels/op_table.h"
#include "kernels/program/arena.h"
#include "kernels/step/stage_order.h"
#include "kernels/step/step_draft.h"

namespace concert::kernels {
namespace {

bool IsExchanged(Address at) { return at >= kExchangeBase; }

// --- What a stage does to memory ---

void AddRead(std::vector<Touch>& touches, concert_field field, const StridedRange& memory) {
  if (memory.begin != 0) touches.push_back({memory, 0, field, true, false});
}

// A client's own memory, of a run's bindings, is not known yet.
std::vector<Touch> MemoryOf(const StepCopy& copy) {
  std::vector<Touch> touches;
  for (uint32_t i = 0; i < copy.count; ++i) {
    const StepCopy::Piece& piece = copy.pieces[i];
    const auto at = [&](Address begin) { return StridedRange::Of(begin, piece.bytes); };
    if (piece.from_binding < 0) AddRead(touches, CONCERT_FIELD_SRC, at(piece.from));
    if (piece.to_binding < 0) touches.push_back({at(piece.to), 0, CONCERT_FIELD_DST, false, true});
  }
  return touches;
}

std::vector<Touch> MemoryOf(const StepGemm& gemm) {
  std::vector<Touch> touches;
  if (!gemm.a_exchanged)
    AddRead(touches, CONCERT_FIELD_A, MatrixAt(gemm.a, gemm.m, gemm.k, gemm.lda));
  AddRead(touches, CONCERT_FIELD_W, MatrixAt(gemm.w, gemm.n, gemm.k, gemm.ldw));
  AddRead(touches, CONCERT_FIELD_WEIGHT, MatrixAt(gemm.gain, 1, gemm.k, 0));
  AddRead(touches, CONCERT_FIELD_BIAS, MatrixAt(gemm.bias, 1, gemm.n, 0));
  if (!gemm.c_exchanged && gemm.beta != 0)
    AddRead(touches, CONCERT_FIELD_C, MatrixAt(gemm.c, gemm.m, gemm.n, gemm.ldc));
  if (gemm.stores_d) {
    touches.push_back(
        {MatrixAt(gemm.d, gemm.m, ColumnsOfD(gemm), gemm.ldd), 0, CONCERT_FIELD_D, false, true});
  }
  if (gemm.epilogue != StepEpilogue::kRope) return touches;
  Op rope;
  rope.kind = CONCERT_OP_ROPE_APPEND;
  rope.rope_append = gemm.rope;
  for (const Touch& touch : TouchesOf(rope)) {
    const bool is_head = touch.field == CONCERT_FIELD_Q || touch.field == CONCERT_FIELD_K ||
                         touch.field == CONCERT_FIELD_V;
    if (!is_head) touches.push_back(touch);
  }
  return touches;
}

// But for what comes from the exchange and goes there.
std::vector<Touch> MemoryOf(const PlannedStage& stage) {
  if (stage.kind == StageKind::kCopy) return MemoryOf(stage.copy);
  if (stage.kind == StageKind::kGemm) return MemoryOf(stage.gemm);
  std::vector<Touch> touches = TouchesOf(stage.op);
  std::erase_if(touches, [](const Touch& touch) { return IsExchanged(touch.memory.begin); });
  return touches;
}

bool Conflict(const Touch& a, const Touch& b) {
  return (a.writes || b.writes) && Overlap(a.memory, b.memory);
}
bool Conflict(std::span<const Touch> a, std::span<const Touch> b) {
  return std::any_of(a.begin(), a.end(), [&](const Touch& one) {
    return std::any_of(b.begin(), b.end(),
                       [&](const Touch& other) { return Conflict(one, other); });
  });
}

// --- The exchange ---

struct Exchanged {
  Address begin = 0;
  uint64_t rows = 0, columns = 0;

  ByteRange bytes() const { return {begin, begin + rows * columns * kStepElementBytes}; }
  bool operator==(const Exchanged&) const = default;
};

// What a stage leaves there. No rows: nothing.
Exchanged LeftBy(const PlannedStage& stage) {
  if (stage.kind == StageKind::kGemm && stage.gemm.stores_exchanged) {
    const StepGemm& gemm = stage.gemm;
    const bool is_rope = gemm.epilogue == StepEpilogue::kRope;
    return {gemm.exchanged, gemm.m, is_rope ? gemm.n : ColumnsOfD(gemm)};
  }
  if (stage.kind != StageKind::kAttention || !stage.exchanges) return {};
  const AttentionDecodeArgs& op = stage.op.attention_decode;
  return {op.out, op.rows, op.out_stride};
}

class Checker {
 public:
  Checker(const Program& program, const StepPlan& plan)
      : program_(program), stages_(plan.stages), plan_(plan), order_(plan.stages.size()) {
    for (const PlannedStage& stage : stages_) {
      touches_.push_back(MemoryOf(stage));
      left_.push_back(LeftBy(stage));
    }
    for (size_t i = 0; i < stages_.size(); ++i) AddSlots(i);
    for (const Op& op : program.ops) of_ops_.push_back(TouchesOf(op));
  }

  absl::Status Run() {
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (absl::Status status = Check(i); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Wrong(size_t stage, absl::string_view what) const {
    return absl::InternalError(
        absl::StrCat("stage ", stage, ", ", DescribeStage(program_, stages_[stage]), ": ", what));
  }

  // Which tokens attention takes from the exchange, its maker's slots say.
  void AddSlots(size_t i) {
    const std::optional<uint32_t> maker = stages_[i].heads_from;
    if (!maker.has_value() || *maker >= i) return;
    for (const Touch& touch : touches_[*maker]) {
      if (touch.field == CONCERT_FIELD_SLOTS) touches_[i].push_back(touch);
    }
  }

  absl::Status Check(size_t i) {
    const PlannedStage& stage = stages_[i];
    for (const auto& from : {stage.a_from, stage.heads_from}) {
      if (from.has_value() && *from >= i) return Wrong(i, "reads what a later stage makes");
    }
    order_.Begin(i, stage);
    for (const uint32_t wait : stage.waits) {
      if (wait >= i)
        return Wrong(i, absl::StrCat("waits for stage ", wait, ", which is not before"));
      if (stages_[wait].awaited < LeastAwaited(i))
        return Wrong(i, absl::StrCat("waits for stage ", wait, ", which tells nobody of its end"));
      order_.Wait(i, wait);
    }
    order_.End(i, stage);
    if (absl::Status status = CheckExchange(i); !status.ok()) return status;
    if (absl::Status status = CheckIsWritten(i); !status.ok()) return status;
    for (size_t j = 0; j < i; ++j) {
      if (absl::Status status = CheckPair(i, j); !status.ok()) return status;
    }
    return CheckReadAhead(i);
  }

  bool CopiesOut(size_t i) const { return plan_.copies_out && i + 1 == stages_.size(); }
  Awaited LeastAwaited(size_t i) const {
    return CopiesOut(i) ? Awaited::kByCopyOut : Awaited::kAlways;
  }

  // --- The exchange ---

  absl::Status CheckExchange(size_t i) const {
    const PlannedStage& stage = stages_[i];
    if (const Exchanged& left = left_[i]; left.rows > 0) {
      const Address end = kExchangeBase + plan_.exchange_bytes;
      if (!IsExchanged(left.begin) || left.bytes().end > end)
        return Wrong(i, "leaves a result outside of the exchange");
      for (size_t j = 0; j < i; ++j) {
        if (left_[j].rows > 0 && left.bytes().Overlaps(left_[j].bytes()))
          return Wrong(i, absl::StrCat("leaves a result where stage ", j, " leaves one"));
      }
    }
    if (stage.kind == StageKind::kGemm) return CheckExchanged(i, stage.gemm);
    if (stage.kind != StageKind::kAttention) return absl::OkStatus();
    const AttentionDecodeArgs& op = stage.op.attention_decode;
    if (!stage.heads_from.has_value())
      return IsExchanged(op.q) ? Wrong(i, "reads q of nobody") : absl::OkStatus();
    return CheckIsLeft(i, {op.q, op.rows, op.q_stride}, stage.heads_from, "q");
  }
  absl::Status CheckExchanged(size_t i, const StepGemm& gemm) const {
    absl::Status status;
    if (gemm.a_exchanged != stages_[i].a_from.has_value())
      return Wrong(i, "does not say which stage makes its A");
    if (gemm.a_exchanged) status = CheckIsLeft(i, {gemm.a, gemm.m, gemm.k}, stages_[i].a_from, "A");
    if (status.ok() && gemm.c_exchanged)
      status = CheckIsLeft(i, {gemm.c, gemm.m, gemm.n}, std::nullopt, "C");
    return status;
  }
  // `by`: by which stage; nullopt: by any of those whose results the stage looks for.
  absl::Status CheckIsLeft(size_t i, const Exchanged& read, std::optional<uint32_t> by,
                           absl::string_view operand) const {
    for (const uint32_t maker : stages_[i].looks_for) {
      if (maker < i && left_[maker] == read && by.value_or(maker) == maker) return absl::OkStatus();
    }
    return Wrong(i, absl::StrCat("looks for ", operand, " where no earlier stage leaves it"));
  }

  // --- Memory ---

  // Of the arena, as whoever recorded the program had to: by the bounds of what is written.
  absl::Status CheckIsWritten(size_t i) {
    for (const Touch& touch : touches_[i]) {
      const ByteRange bounds = touch.memory.Bounds();
      const bool in_arena =
          bounds.begin >= program_.arena.begin && bounds.end <= program_.arena.end;
      if (in_arena && touch.reads && !written_.Covers(bounds.begin, bounds.end))
        return Wrong(i, "reads of the arena what nobody has written");
    }
    for (const Touch& touch : touches_[i]) {
      const ByteRange bounds = touch.memory.Bounds();
      if (touch.writes) written_.Add(bounds.begin, bounds.end);
    }
    return absl::OkStatus();
  }

  absl::Status CheckPair(size_t i, size_t j) const {
    bool reads_written = false, overwrites_read = CopiesOut(i), writes = false;
    for (const Touch& touch : touches_[i]) {
      for (const Touch& earlier : touches_[j]) {
        if (!Conflict(touch, earlier)) continue;
        // What has been appended is taken from the exchange.
        if (stages_[i].heads_from == j && IsOfKvCache(touch.field) && IsOfKvCache(earlier.field))
          continue;
        (earlier.writes ? reads_written : overwrites_read) = true;
      }
    }
    for (const Touch& earlier : touches_[j]) writes |= earlier.writes;
    // Sums of attention's chunks have one place.
    overwrites_read |=
        stages_[i].kind == StageKind::kAttention && stages_[j].kind == StageKind::kAttention;
    if ((reads_written || (CopiesOut(i) && writes)) && !order_.IsVisible(i, j))
      return Wrong(i, absl::StrCat("uses what stage ", j, " writes and does not wait for it"));
    if (overwrites_read && !order_.IsDone(i, j))
      return Wrong(i, absl::StrCat("overwrites what stage ", j, " reads and does not wait for it"));
    return reads_written || overwrites_read ? CheckOrder(i, j) : absl::OkStatus();
  }

  // That no op of the earlier stage is one that comes later in the program.
  absl::Status CheckOrder(size_t i, size_t j) const {
    for (const uint32_t op : stages_[i].ops) {
      for (const uint32_t ahead : stages_[j].ops) {
        if (op < ahead && Conflict(of_ops_[op], of_ops_[ahead]))
          return Wrong(i, absl::StrCat("does op ", op, " behind op ", ahead));
      }
    }
    return absl::OkStatus();
  }

  // What the stage reads ahead of its turn, from when bindings are there.
  absl::Status CheckReadAhead(size_t i) const {
    const PlannedStage& stage = stages_[i];
    for (const Touch& touch : touches_[i]) {
      const bool is_weights = stage.kind == StageKind::kGemm && touch.field == CONCERT_FIELD_W;
      if (!is_weights && !IsOfHeadsAhead(stage, touch)) continue;
      const size_t end = is_weights ? stages_.size() : i;
      for (size_t j = is_weights ? 0 : kTablesStage + 1; j < end; ++j) {
        const bool appends = !is_weights && stage.heads_from == j && IsOfKvCache(touch.field);
        if (!appends && AnyWrites(touches_[j], touch.memory))
          return Wrong(i, absl::StrCat("reads ahead what stage ", j, " writes"));
      }
    }
    return absl::OkStatus();
  }
  static bool IsOfHeadsAhead(const PlannedStage& stage, const Touch& touch) {
    return stage.heads_from.has_value() && (IsOfKvCache(touch.field) || IsCacheTable(touch.field));
  }

  const Program& program_;
  const std::vector<PlannedStage>& stages_;
  const StepPlan& plan_;
  StageOrder order_;
  std::vector<std::vector<Touch>> touches_;  // by stage
  std::vector<std::vector<Touch>> of_ops_;   // by op of the program
  std::vector<Exchanged> left_;              // by stage
  ByteSet written_;                          // by the stages so far
};

}  // namespace

absl::Status CheckStep(const Program& program, const StepPlan& plan) {
  return Checker(program, plan).Run();
}

}  // namespace concert::kernels
