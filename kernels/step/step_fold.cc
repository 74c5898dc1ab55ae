// What becomes part of a GEMM. A fold changes when memory is read and written, so each of them
// checks that what it leaves out is read by nobody, and that what it reads later or writes earlier
// is still, or already, there: the arena gives memory of one slot to another.
#include <algorithm>
#include <initializer_list>
#include <limits>

#include "kernels/step/step_draft.h"

namespace concert::kernels {
namespace {

StridedRange ResultOf(const StepGemm& gemm) { return MatrixAt(gemm.d, gemm.m, gemm.n, gemm.ldd); }

// A GEMM's strides have 32 bits.
bool FitsStride(uint64_t stride) { return stride <= std::numeric_limits<uint32_t>::max(); }

// Whether the draft touches this memory by no other operands of its op than these.
bool OnlyTouches(const Draft& draft, const StridedRange& memory,
                 std::initializer_list<concert_field> operands) {
  return std::all_of(draft.touches.begin(), draft.touches.end(), [&](const Touch& touch) {
    return !Overlap(touch.memory, memory) ||
           std::find(operands.begin(), operands.end(), touch.field) != operands.end();
  });
}

// The draft holds what `from` does, too.
void TakeOps(Draft& draft, Draft& from) {
  std::vector<uint32_t>& ops = draft.stage.ops;
  ops.insert(ops.end(), from.stage.ops.begin(), from.stage.ops.end());
}

// x of a norm that adds it to a residual: the GEMM that makes x adds to the residual itself.
void FoldResidual(StepDraft& drafts, Draft& draft) {
  StepGemm& gemm = draft.stage.gemm;
  Draft* const follower = drafts.FollowerOf(draft.stage.ops.back());
  if (follower == nullptr || follower->stage.op.kind != CONCERT_OP_RMS_NORM || !IsPlain(gemm))
    return;
  RmsNormArgs& norm = follower->stage.op.rms_norm;
  const StridedRange result = ResultOf(gemm);
  const StridedRange residual =
      MatrixAt(norm.residual, norm.rows, norm.columns, norm.residual_stride);
  if (norm.residual == 0 || norm.dtype != Dtype::kBf16 || norm.x != gemm.d ||
      norm.x_stride != gemm.ldd || norm.rows != gemm.m || norm.columns != gemm.n ||
      norm.residual_stride % 2 != 0 || norm.residual % 4 != 0 ||
      !FitsStride(norm.residual_stride)) {
    return;
  }
  if (!drafts.IsIntermediate(result) || draft.Reads(residual) || draft.Writes(residual) ||
      !OnlyTouches(*follower, result, {CONCERT_FIELD_INPUT}) ||
      !drafts.IsDeadBehind(drafts.IndexOf(*follower), result, draft.BufferOf(result))) {
    return;
  }
  gemm.c = gemm.d = norm.residual;
  gemm.ldc = gemm.ldd = static_cast<uint32_t>(norm.residual_stride);
  gemm.beta = 1;
  const uint32_t buffer = follower->BufferOf(residual);
  draft.Replace(result, {residual, buffer, CONCERT_FIELD_D, false, true});
  draft.touches.push_back({residual, buffer, CONCERT_FIELD_C, true, false});
  follower->Replace(result, {});
  follower->Replace(residual, {residual, buffer, CONCERT_FIELD_INPUT, true, false});
  norm.x = norm.residual, norm.x_stride = norm.residual_stride;
  norm.residual = 0;
}

// The GEMMs that read what draft `index`, a norm, makes, and nothing but them: empty if others do,
// or if what the norm reads is no longer there when they run.
std::vector<Draft*> ReadersOfNorm(StepDraft& drafts, size_t index) {
  const RmsNormArgs& norm = drafts.drafts()[index].stage.op.rms_norm;
  const StridedRange input = MatrixAt(norm.x, norm.rows, norm.columns, norm.x_stride);
  const StridedRange gain = MatrixAt(norm.weight, 1, norm.columns, 0);
  const StridedRange result = MatrixAt(norm.out, norm.rows, norm.columns, norm.out_stride);
  const uint32_t slot = drafts.drafts()[index].BufferOf(result);
  const auto overwrites = [&](const Draft& draft) {
    return draft.Writes(input) || draft.Writes(gain);
  };
  const auto of_result = [&](const Touch& touch) {
    return touch.buffer == slot && Overlap(touch.memory, result);
  };
  std::vector<Draft*> readers;
  bool stays = true;
  for (size_t i = index + 1; i < drafts.drafts().size(); ++i) {
    Draft& draft = drafts.drafts()[i];
    if (draft.gone) continue;
    const auto touch = std::find_if(draft.touches.begin(), draft.touches.end(), of_result);
    if (touch != draft.touches.end()) {
      if (touch->writes && !touch->reads)
        return drafts.IsDeadBehind(i - 1, result, slot) ? readers : std::vector<Draft*>{};
      const StepGemm& gemm = draft.stage.gemm;
      const bool as_a = draft.stage.kind == StageKind::kGemm && gemm.a == norm.out &&
                        gemm.lda == norm.out_stride && gemm.m == norm.rows &&
                        gemm.k == norm.columns && gemm.gain == 0;
      const auto once = std::count_if(draft.touches.begin(), draft.touches.end(), of_result);
      if (!as_a || once != 1 || !stays || overwrites(draft)) return {};
      readers.push_back(&draft);
    }
    stays = stays && !overwrites(draft);
  }
  return readers;
}

void FoldNorm(StepDraft& drafts, Draft& draft) {
  const RmsNormArgs& norm = draft.stage.op.rms_norm;
  const StridedRange input = MatrixAt(norm.x, norm.rows, norm.columns, norm.x_stride);
  const StridedRange result = MatrixAt(norm.out, norm.rows, norm.columns, norm.out_stride);
  if (norm.residual != 0 || norm.dtype != Dtype::kBf16 || norm.out == norm.x ||
      (norm.x | norm.weight) % 16 != 0 || norm.x_stride % 8 != 0 || !FitsStride(norm.x_stride) ||
      !drafts.IsIntermediate(result)) {
    return;
  }
  const StridedRange gain = MatrixAt(norm.weight, 1, norm.columns, 0);
  const std::vector<Draft*> readers = ReadersOfNorm(drafts, drafts.IndexOf(draft));
  if (readers.empty()) return;
  for (Draft* reader : readers) {
    StepGemm& gemm = reader->stage.gemm;
    gemm.a = norm.x, gemm.lda = static_cast<uint32_t>(norm.x_stride);
    gemm.gain = norm.weight, gemm.epsilon = norm.epsilon;
    reader->Replace(result, {input, draft.BufferOf(input), CONCERT_FIELD_A, true, false});
    reader->touches.push_back({gain, draft.BufferOf(gain), CONCERT_FIELD_WEIGHT, true, false});
  }
  TakeOps(*readers.front(), draft);
  draft.gone = true;
}

void FoldGate(StepDraft& drafts, Draft& draft) {
  StepGemm& gemm = draft.stage.gemm;
  Draft* const follower = drafts.FollowerOf(draft.stage.ops.front());
  if (follower == nullptr || follower->stage.op.kind != CONCERT_OP_GATED_ACTIVATION ||
      !IsPlain(gemm)) {
    return;
  }
  const GatedActivationArgs& gated = follower->stage.op.gated_activation;
  const StridedRange result = ResultOf(gemm);
  const StridedRange out = MatrixAt(gated.out, gated.rows, gated.columns, gated.out_stride);
  if (gated.dtype != Dtype::kBf16 || gated.x != gemm.d || gated.x_stride != gemm.ldd ||
      gated.rows != gemm.m || gated.columns * 2 != gemm.n || gated.out_stride % 2 != 0 ||
      !FitsStride(gated.out_stride) || gated.out % 4 != 0 ||
      (!gated.interleaved && gated.columns % (kStepTile / 2) != 0)) {
    return;
  }
  if (!drafts.IsIntermediate(result) || draft.Reads(out) || Overlap(out, result) ||
      !drafts.IsDeadBehind(drafts.IndexOf(*follower), result, draft.BufferOf(result))) {
    return;
  }
  gemm.epilogue = gated.interleaved ? StepEpilogue::kGatedNeighbours : StepEpilogue::kGated;
  gemm.activation = gated.activation;
  gemm.d = gated.out, gemm.ldd = static_cast<uint32_t>(gated.out_stride);
  draft.Replace(result, {out, follower->BufferOf(out), CONCERT_FIELD_D, false, true});
  TakeOps(draft, *follower);
  follower->gone = true;
}

// Whether the GEMM's columns are q's, k's and v's heads, one behind the other, in whole units.
bool MakesHeads(const StepGemm& gemm, const RopeAppendArgs& rope) {
  const KvCacheArgs& cache = rope.cache;
  return AreHeads(rope, gemm.d, gemm.n, gemm.ldd) && rope.rows == gemm.m &&
         (rope.head_dim | rope.rotary_dim) % kStepTile == 0 && rope.head_dim > kStepTile &&
         gemm.n / kStepTile < (1u << 16) && cache.tokens() < (uint64_t{1} << 32) &&
         (cache.k | cache.v) % 4 == 0 &&
         (cache.page_stride | cache.token_stride | cache.head_stride) % 2 == 0;
}

void FoldRope(StepDraft& drafts, Draft& draft) {
  StepGemm& gemm = draft.stage.gemm;
  Draft* const follower = drafts.FollowerOf(draft.stage.ops.front());
  if (follower == nullptr || follower->stage.op.kind != CONCERT_OP_ROPE_APPEND || !IsPlain(gemm))
    return;
  const RopeAppendArgs& rope = follower->stage.op.rope_append;
  if (!MakesHeads(gemm, rope)) return;
  const StridedRange result = ResultOf(gemm);
  if (!drafts.IsIntermediate(result) || !MayRotate(drafts, draft, *follower, result)) return;
  gemm.epilogue = StepEpilogue::kRope;
  gemm.rope = rope;
  const uint64_t head_units = rope.head_dim / kStepTile;
  gemm.head_units_inverse =
      static_cast<uint32_t>(((uint64_t{1} << 32) + head_units - 1) / head_units);
  for (const Touch& touch : follower->touches) {
    if (!Overlap(touch.memory, result)) draft.touches.push_back(touch);
  }
  TakeOps(draft, *follower);
  follower->gone = true;
}

// The drafts behind draft `index`, a copy, that read what it makes: GEMMs, as A or C, while what
// was copied is still there. Empty: nobody does, or somebody in another way.
std::vector<Draft*> ReadersOfCopy(StepDraft& drafts, size_t index, const StridedRange& source,
                                  const StridedRange& target) {
  const ByteRange bytes = target.Bounds();
  std::vector<Draft*> readers;
  bool source_stays = true;
  for (size_t i = index + 1; i < drafts.drafts().size(); ++i) {
    Draft& draft = drafts.drafts()[i];
    if (draft.gone) continue;
    bool reads = false, overwrites = false;
    for (const Touch& touch : draft.touches) {
      if (!Overlap(touch.memory, target)) continue;
      const ByteRange touched = touch.memory.Bounds();
      if (touch.reads) {
        const bool as_operand = draft.stage.kind == StageKind::kGemm && !touch.writes &&
                                (touch.field == CONCERT_FIELD_A || touch.field == CONCERT_FIELD_C);
        if (!as_operand || touched.begin < bytes.begin || touched.end > bytes.end) return {};
        reads = true;
      } else {
        if (touch.memory.level_count != 0 || touched.begin > bytes.begin || touched.end < bytes.end)
          return {};
        overwrites = true;
      }
    }
    source_stays = source_stays && !draft.Writes(source);
    if (reads && !source_stays) return {};
    if (reads) readers.push_back(&draft);
    if (overwrites) break;
  }
  return readers;
}

// What reads a copy reads what was copied: as of a step's input, of which the residual stream, to
// which the step adds, begins as a copy.
void FoldCopy(StepDraft& drafts, Draft& draft) {
  const CopyArgs& copy = draft.stage.op.copy;
  const StridedRange source = StridedRange::Of(copy.src, copy.bytes);
  const StridedRange target = StridedRange::Of(copy.dst, copy.bytes);
  const uint64_t away = copy.src - copy.dst;
  if (away % 16 != 0 || !drafts.IsIntermediate(target)) return;
  if (draft.stage.op.work.link_bytes != 0) return;  // else every tile would read over the link
  const std::vector<Draft*> readers = ReadersOfCopy(drafts, drafts.IndexOf(draft), source, target);
  if (readers.empty()) return;
  for (Draft* reader : readers) {
    for (Touch& touch : reader->touches) {
      if (!touch.reads || !Overlap(touch.memory, target)) continue;
      touch.memory.begin += away;
      touch.buffer = draft.BufferOf(source);
      (touch.field == CONCERT_FIELD_A ? reader->stage.gemm.a : reader->stage.gemm.c) += away;
    }
  }
  TakeOps(*readers.front(), draft);
  draft.gone = true;
}

void EachGemm(StepDraft& drafts, void (*fold)(StepDraft&, Draft&)) {
  for (Draft& draft : drafts.drafts()) {
    if (draft.stage.kind == StageKind::kGemm && !draft.gone) fold(drafts, draft);
  }
}

}  // namespace

bool MayRotate(const StepDraft& drafts, const Draft& gemm, Draft& rope, const StridedRange& made) {
  const RopeAppendArgs& args = rope.stage.op.rope_append;
  const StridedRange keys_and_values =
      MatrixAt(args.k, args.rows, 2u * args.kv_heads * args.head_dim, args.k_stride);
  const auto clashes = [&](const Touch& touch) {  // with what the GEMM reads
    return touch.writes && !Overlap(touch.memory, made) && gemm.Reads(touch.memory);
  };
  return OnlyTouches(rope, made, {CONCERT_FIELD_Q, CONCERT_FIELD_K, CONCERT_FIELD_V}) &&
         drafts.IsDeadBehind(drafts.IndexOf(rope), keys_and_values,
                             TouchOf(rope, CONCERT_FIELD_K)->buffer) &&
         std::none_of(rope.touches.begin(), rope.touches.end(), clashes);
}

void FoldIntoGemms(StepDraft& drafts) {
  EachGemm(drafts, FoldResidual);
  // Before gates: their results may take the memory of a norm's, which is then free.
  for (Draft& draft : drafts.drafts()) {
    if (draft.stage.op.kind == CONCERT_OP_RMS_NORM) FoldNorm(drafts, draft);
  }
  EachGemm(drafts, FoldGate);
}

void Fold(StepDraft& drafts) {
  FoldIntoGemms(drafts);
  EachGemm(drafts, FoldRope);
  FoldCopies(drafts);
}

void FoldCopies(StepDraft& drafts) {
  for (Draft& draft : drafts.drafts()) {
    if (draft.stage.op.kind == CONCERT_OP_COPY) FoldCopy(drafts, draft);
  }
}

}  // namespace concert::kernels
