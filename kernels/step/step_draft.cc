#include "kernels/step/step_draft.h"

#include <algorithm>

#include "kernels/op_table.h"

namespace concert::kernels {

StridedRange MatrixAt(Address begin, uint64_t rows, uint64_t columns, uint64_t stride) {
  return StridedRange::Of(begin, columns * kStepElementBytes, rows, stride * kStepElementBytes);
}

bool Overlap(const StridedRange& a, const StridedRange& b) {
  if (!a.Bounds().Overlaps(b.Bounds())) return false;
  int pieces_left = 64;
  return Meet(a, b, pieces_left) || pieces_left <= 0;
}

bool AreHeads(const RopeAppendArgs& rope, Address begin, uint64_t columns, uint64_t stride) {
  const uint64_t head_bytes = rope.head_dim * kStepElementBytes;
  const uint64_t heads = uint64_t{rope.q_heads} + 2u * rope.kv_heads;
  return rope.dtype == Dtype::kBf16 && heads * rope.head_dim == columns && rope.q == begin &&
         rope.k == rope.q + rope.q_heads * head_bytes &&
         rope.v == rope.k + rope.kv_heads * head_bytes && rope.q_stride == stride &&
         rope.k_stride == stride && rope.v_stride == stride;
}

bool IsPlain(const StepGemm& gemm) {
  return gemm.epilogue == StepEpilogue::kStore && gemm.activation == Activation::kNone &&
         (gemm.c == 0 || gemm.beta == 0);
}

StepGemm StepGemmOf(const GemmArgs& gemm) {
  StepGemm step = {};
  step.m = gemm.m, step.n = gemm.n, step.k = gemm.k;
  step.lda = static_cast<uint32_t>(gemm.lda);
  step.ldc = static_cast<uint32_t>(gemm.ldc);
  step.ldd = static_cast<uint32_t>(gemm.ldd);
  step.ldw = gemm.ldw;
  step.a = gemm.a, step.w = gemm.w, step.c = gemm.c, step.d = gemm.d, step.bias = gemm.bias;
  step.k_inverse = 1.0f / static_cast<float>(gemm.k);
  step.alpha = gemm.alpha, step.beta = gemm.beta;
  step.activation = gemm.activation;
  if (gemm.gated)
    step.epilogue = gemm.interleaved ? StepEpilogue::kGatedNeighbours : StepEpilogue::kGated;
  step.stores_d = true;
  return step;
}

uint32_t ColumnsOfD(const StepGemm& gemm) {
  switch (gemm.epilogue) {
    case StepEpilogue::kStore:
      return gemm.n;
    case StepEpilogue::kRope:
      return uint32_t{gemm.rope.q_heads} * gemm.rope.head_dim;
    case StepEpilogue::kGated:
    case StepEpilogue::kGatedNeighbours:
      break;
  }
  return gemm.n / 2;
}

std::vector<Touch> TouchesOf(const Op& op) {
  std::vector<Touch> touches;
  const Accesses accesses = AccessesOf(op);
  for (const Access& access : accesses.list()) {
    touches.push_back({access.memory, access.buffer, access.field,
                       access.mode != AccessMode::kWrite, access.writes()});
  }
  return touches;
}

bool AnyWrites(std::span<const Touch> touches, const StridedRange& memory) {
  return std::any_of(touches.begin(), touches.end(),
                     [&](const Touch& t) { return t.writes && Overlap(t.memory, memory); });
}

bool IsCacheTable(concert_field field) {
  return field == CONCERT_FIELD_PAGE_TABLE || field == CONCERT_FIELD_LENGTHS ||
         field == CONCERT_FIELD_SLOTS;
}

bool Draft::Reads(const StridedRange& memory) const {
  return std::any_of(touches.begin(), touches.end(),
                     [&](const Touch& t) { return t.reads && Overlap(t.memory, memory); });
}
bool Draft::Writes(const StridedRange& memory) const { return AnyWrites(touches, memory); }
uint32_t Draft::BufferOf(const StridedRange& memory) const {
  for (const Touch& touch : touches) {
    if (touch.memory == memory) return touch.buffer;
  }
  return 0;
}
void Draft::Replace(const StridedRange& memory, const Touch& touch) {
  touches.erase(std::remove_if(touches.begin(), touches.end(),
                               [&](const Touch& t) { return t.memory == memory; }),
                touches.end());
  if (touch.memory.run_bytes > 0) touches.push_back(touch);
}

std::vector<Touch>::iterator TouchOf(Draft& draft, concert_field field) {
  return std::find_if(draft.touches.begin(), draft.touches.end(),
                      [field](const Touch& touch) { return touch.field == field; });
}

std::optional<Address> ExchangeSpace::Take(uint64_t rows, uint64_t columns) {
  const uint64_t bytes = (rows * columns * kStepElementBytes + 255) / 256 * 256;
  if (bytes_ + bytes > bytes_max_) return std::nullopt;
  const Address begin = kExchangeBase + bytes_;
  bytes_ += bytes;
  return begin;
}

bool StepDraft::IsIntermediate(const StridedRange& memory) const {
  const ByteRange bytes = memory.Bounds();
  if (bytes.begin < program_.arena.begin || bytes.end > program_.arena.end) return false;
  return std::none_of(program_.bindings.begin(), program_.bindings.end(),
                      [&](const Program::Binding& binding) {
                        return bytes.Overlaps({binding.staged, binding.staged + binding.bytes});
                      });
}

// What a write must cover to end a life: all of it, so that a write without gaps over its bounds
// is asked for.
bool StepDraft::IsDeadBehind(size_t index, const StridedRange& memory, uint32_t buffer) const {
  const ByteRange bytes = memory.Bounds();
  const auto same = [&](const Touch& touch) {
    return (buffer & kSlotBit) == 0 || touch.buffer == buffer;
  };
  const auto covers = [&](const Touch& touch) {
    const ByteRange written = touch.memory.Bounds();
    return same(touch) && touch.writes && touch.memory.level_count == 0 &&
           written.begin <= bytes.begin && written.end >= bytes.end;
  };
  for (size_t i = index + 1; i < drafts_.size(); ++i) {
    const Draft& draft = drafts_[i];
    if (draft.gone) continue;
    const auto reads = [&](const Touch& touch) {
      return same(touch) && touch.reads && Overlap(touch.memory, memory);
    };
    if (std::any_of(draft.touches.begin(), draft.touches.end(), reads)) return false;
    if (std::any_of(draft.touches.begin(), draft.touches.end(), covers)) return true;
  }
  return true;
}

Draft* StepDraft::FollowerOf(uint32_t op) {
  if (op + 1 >= drafts_.size() || drafts_[op + 1].gone) return nullptr;
  return &drafts_[op + 1];
}

}  // namespace concert::kernels
