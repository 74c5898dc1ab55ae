// Programs like those of decode steps, recorded as a client would, for the tests of the step
// kernel's plan.
#ifndef CONCERT_TESTS_UNIT_KERNELS_STEP_RECORDER_H_
#define CONCERT_TESTS_UNIT_KERNELS_STEP_RECORDER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/program/compile.h"
#include "tests/unit/kernels/admit_fixture.h"

namespace concert::kernels {

struct StepModel {
  uint32_t rows = 8, hidden = 256, q_heads = 4, kv_heads = 2, dim = 64, rotary = 32, inner = 512;
  bool interleaved = false;  // pairs of the rotary embedding and of the gate
  bool second_norm = true;   // else the second half of a layer begins with an op that no fold knows
  bool one_cache = false;    // all layers append to and read the same
  bool gemms_add = false;    // GEMMs add to the residual, and norms behind them do not
  bool gemms_gate = false;   // GEMMs gate their products, and no op behind them does
  bool makes_gains = false;  // of norms, as of 1 + w, by an op before each
  bool advances_slots = false;  // that rows are appended at, as of a contiguous cache
  bool row_scales = false;      // of what attention makes, which the step kernel does not know

  uint32_t head_columns() const { return (q_heads + 2 * kv_heads) * dim; }
};

// Buffers: weights and tables, and the cache.
inline constexpr uint32_t kStepWeights = 1, kStepCache = 2;
// They do not exist: planning reads no operand.
inline const std::vector<BufferRange> kStepMemory = {
    {}, {0x100000000, 256 * kMiB, 0, false}, {0x200000000, 64 * kMiB, 0, false}};

class StepRecorder {
 public:
  // `buffers` has the two.
  StepRecorder(const StepModel& model, std::span<const BufferRange> buffers)
      : model_(model), buffers_(buffers) {}

  const StepModel& model() const { return model_; }

  uint32_t Slot(uint64_t columns, bool binding = false) {
    slots_.push_back(
        {binding ? CONCERT_SLOT_BINDING : CONCERT_SLOT_ARENA, 0, model_.rows * columns * 2});
    return CONCERT_SLOT_HANDLE(slots_.size() - 1);
  }

  concert_gemm_body& Gemm(uint32_t a, uint32_t k, uint32_t d, uint32_t n) {
    concert_gemm_body& body = Add(GoodGemm()).body.gemm;
    body.m = model_.rows, body.n = n, body.k = k;
    body.a = {a, 0, 0}, body.w = Weight(uint64_t{n} * k), body.d = {d, 0, 0};
    body.c = body.bias = {};
    body.lda = body.ldw = k, body.ldd = n, body.ldc = 0;
    body.beta = 0;
    return body;
  }
  // With the residual stream as C and D: what a norm that adds to it would do first.
  concert_gemm_body& GatedGemm(uint32_t a, uint32_t k, uint32_t d) {
    concert_gemm_body& body = Gemm(a, k, d, 2 * model_.inner);
    body.ldd = model_.inner;
    body.activation = CONCERT_ABI_ACT_SILU;
    body.flags = CONCERT_GEMM_GATED | (model_.interleaved ? CONCERT_GEMM_GATE_INTERLEAVED : 0);
    return body;
  }
  // Whatever numbers are there.
  void ScaleRows(concert_gemm_body& body) {
    body.a.scales = kStepWeights, body.a_scales_offset = TableAt(4);
    body.flags |= CONCERT_GEMM_A_SCALES_PER_ROW;
  }
  concert_gemm_body& GemmOnto(uint32_t a, uint32_t k, uint32_t residual) {
    concert_gemm_body& body = Gemm(a, k, residual, model_.hidden);
    body.c = body.d, body.ldc = body.ldd, body.beta = 1;
    body.flags = CONCERT_GEMM_RESIDUAL;
    return body;
  }
  concert_rms_norm_body& Norm(uint32_t x, uint32_t residual, uint32_t out) {
    const concert_operand gain = Gain();
    concert_rms_norm_body& body = Add(GoodRmsNorm()).body.rms_norm;
    body.rows = model_.rows, body.columns = model_.hidden;
    body.x = {x, 0, 0}, body.residual = {residual, 0, 0}, body.out = {out, 0, 0};
    body.weight = gain;
    body.x_stride = body.out_stride = model_.hidden;
    body.residual_stride = residual == 0 ? 0 : model_.hidden;
    return body;
  }
  concert_gated_activation_body& Gate(uint32_t x, uint32_t out) {
    concert_gated_activation_body& body = Add(GoodGatedActivation()).body.gated_activation;
    body.rows = model_.rows, body.columns = model_.inner;
    body.x = {x, 0, 0}, body.out = {out, 0, 0};
    body.x_stride = 2 * model_.inner, body.out_stride = model_.inner;
    body.dtype = CONCERT_ABI_BF16;
    body.flags = model_.interleaved ? CONCERT_GATED_INTERLEAVED : 0;
    return body;
  }
  concert_rope_append_body& Rope(uint32_t heads) {
    concert_rope_append_body& body = Add(GoodRopeAppend()).body.rope_append;
    body.rows = model_.rows;
    body.q_heads = static_cast<uint16_t>(model_.q_heads);
    body.kv_heads = static_cast<uint16_t>(model_.kv_heads);
    body.head_dim = static_cast<uint16_t>(model_.dim);
    body.rotary_dim = static_cast<uint16_t>(model_.rotary);
    body.q = {heads, 0, 0};
    body.k = {heads, 0, model_.q_heads * model_.dim * 2};
    body.v = {heads, 0, (model_.q_heads + model_.kv_heads) * model_.dim * 2};
    body.positions = Index(0), body.slots = Index(1), body.cos_sin = Index(4);
    body.position_dtype = CONCERT_ABI_INT32;
    body.q_stride = body.k_stride = body.v_stride = model_.head_columns();
    body.flags = model_.interleaved ? CONCERT_ROPE_INTERLEAVED : 0;
    SetCache(body.cache);
    return body;
  }
  concert_attention_decode_body& Attend(uint32_t heads, uint32_t out) {
    concert_attention_decode_body& body = Add(GoodAttentionDecode()).body.attention_decode;
    body.rows = model_.rows;
    body.q_heads = static_cast<uint16_t>(model_.q_heads);
    body.kv_heads = static_cast<uint16_t>(model_.kv_heads);
    body.head_dim = static_cast<uint16_t>(model_.dim);
    body.q = {heads, 0, 0}, body.out = {out, 0, 0};
    body.page_table = Index(2), body.lengths = Index(3);
    body.q_stride = model_.head_columns(), body.out_stride = model_.q_heads * model_.dim;
    SetCache(body.cache);
    if (!model_.one_cache) ++layer_;
    return body;
  }
  // Of x, as a client does what the library has no kind for.
  void Double(uint32_t x, uint64_t columns, uint32_t out) {
    concert_elementwise_body& body = Add(GoodElementwise()).body.elementwise;
    body.rows = model_.rows, body.columns = static_cast<uint32_t>(columns);
    body.x = body.y = {x, 0, 0}, body.out = {out, 0, 0};
    body.x_stride = body.y_stride = body.out_stride = columns;
    body.out_dtype = CONCERT_ABI_BF16;
  }

  // The rows of the next step go behind those of this one.
  void AdvanceSlots() {
    concert_advance_body& body = Add(GoodAdvance()).body.advance;
    body.rows = model_.rows;
    body.counters = Index(1), body.slots = {};
  }

  void Copy(uint32_t x, uint64_t columns, uint32_t out) {
    concert_copy_body& body = Add(GoodCopy()).body.copy;
    body.src = {x, 0, 0}, body.dst = {out, 0, 0};
    body.bytes = model_.rows * columns * 2;
  }

  concert_descriptor& Add(const concert_descriptor& op) { return ops_.emplace_back(op); }

  // Bytes of the arena, which Bind wants.
  uint64_t PlaceArena() {
    const absl::StatusOr<ArenaPlan> plan = PlanArena(Source());
    EXPECT_TRUE(plan.ok()) << plan.status();
    plan_ = *plan;
    return plan_.bytes;
  }
  std::unique_ptr<Program> Bind(Address arena) {
    absl::StatusOr<std::unique_ptr<Program>> program = BindProgram(Source(), plan_, arena);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }

  ProgramSource Source() const {
    return {.gpu = 0, .buffers = buffers_, .slots = slots_, .ops = ops_};
  }

  // Where tables lie among the weights: positions, slots, pages, lengths, cosines and sines.
  static constexpr uint64_t kTableBytes = 64 * 1024;
  static constexpr uint64_t TableAt(int number) { return number * kTableBytes; }

 private:
  concert_operand Gain() {
    const concert_operand weight = Weight(model_.hidden);
    if (!model_.makes_gains) return weight;
    const uint32_t gain = Slot(model_.hidden);
    concert_elementwise_body& body = Add(GoodElementwise()).body.elementwise;
    body.rows = 1, body.columns = model_.hidden;
    body.x = body.y = weight, body.out = {gain, 0, 0};
    body.x_stride = body.y_stride = body.out_stride = model_.hidden;
    body.out_dtype = CONCERT_ABI_BF16;
    return body.out;
  }
  concert_operand Weight(uint64_t elements) {
    const concert_operand weight = {kStepWeights, 0, next_};
    next_ += (elements * 2 + 255) / 256 * 256;
    return weight;
  }
  static concert_operand Index(int number) { return {kStepWeights, 0, TableAt(number)}; }
  void SetCache(concert_kv_cache_abi& cache) const {
    cache.k = {kStepCache, 0, layer_ * kCacheBytes};
    cache.v = {kStepCache, 0, kMiB + layer_ * kCacheBytes};
    cache.pages = 10, cache.page_size = 16;
    cache.head_stride = model_.dim, cache.token_stride = model_.kv_heads * model_.dim;
    cache.page_stride = uint64_t{16} * cache.token_stride;
  }

  static constexpr uint64_t kCacheBytes = 128 * 1024;

  const StepModel model_;
  const std::span<const BufferRange> buffers_;
  std::vector<concert_program_slot> slots_;
  std::vector<concert_descriptor> ops_;
  uint64_t next_ = TableAt(8);
  uint64_t layer_ = 0;  // whose cache is used
  ArenaPlan plan_;
};

// What a layer passes on; slots of its own for each layer, or one set for all.
struct StepSlots {
  uint32_t normed, heads, attended, gates, inner, update;

  static StepSlots Of(StepRecorder& recorder, const StepModel& model) {
    return {recorder.Slot(model.hidden),
            recorder.Slot(model.head_columns()),
            recorder.Slot(model.q_heads * model.dim),
            recorder.Slot(2 * model.inner),
            recorder.Slot(model.inner),
            recorder.Slot(model.hidden)};
  }
};

// A layer; `update`: what the one before leaves to add to the residual, 0: nothing. Returns what
// this one leaves.
inline uint32_t RecordLayer(StepRecorder& recorder, const StepModel& model, const StepSlots& slots,
                            uint32_t residual, uint32_t update) {
  if (update == 0) {
    recorder.Norm(residual, 0, slots.normed);
  } else {
    recorder.Norm(update, residual, slots.normed);
  }
  recorder.Gemm(slots.normed, model.hidden, slots.heads, model.head_columns());
  recorder.Rope(slots.heads);
  recorder.Attend(slots.heads, slots.attended);
  const uint32_t attended_columns = model.q_heads * model.dim;
  const bool adds = model.gemms_add && model.second_norm;
  concert_gemm_body& projection =
      adds ? recorder.GemmOnto(slots.attended, attended_columns, residual)
           : recorder.Gemm(slots.attended, attended_columns, slots.update, model.hidden);
  if (model.row_scales) recorder.ScaleRows(projection);
  if (adds) {
    recorder.Norm(residual, 0, slots.normed);
  } else if (model.second_norm) {
    recorder.Norm(slots.update, residual, slots.normed);
  } else {
    recorder.Double(slots.update, model.hidden, slots.normed);
  }
  if (model.gemms_gate) {
    recorder.GatedGemm(slots.normed, model.hidden, slots.inner);
  } else {
    recorder.Gemm(slots.normed, model.hidden, slots.gates, 2 * model.inner);
    recorder.Gate(slots.gates, slots.inner);
  }
  if (model.gemms_add) {
    recorder.GemmOnto(slots.inner, model.inner, residual);
    return 0;
  }
  recorder.Gemm(slots.inner, model.inner, slots.update, model.hidden);
  return slots.update;
}

// Two layers and the last norm, whose result is a binding.
inline std::unique_ptr<Program> Layers(const StepModel& model, Address arena = 0x300000000) {
  StepRecorder recorder(model, kStepMemory);
  const uint32_t residual = recorder.Slot(model.hidden, /*binding=*/true);
  const uint32_t out = recorder.Slot(model.hidden, /*binding=*/true);
  const StepSlots slots = StepSlots::Of(recorder, model);
  RecordLayer(recorder, model, slots, residual, 0);
  RecordLayer(recorder, model, slots, residual, slots.update);
  recorder.Norm(slots.update, residual, out);
  recorder.PlaceArena();
  return recorder.Bind(arena);
}

// Layers whose attention is of so many tokens that it is cut into chunks.
inline std::unique_ptr<Program> LayersOfLongRows(Address arena = 0x300000000) {
  std::unique_ptr<Program> program = Layers({}, arena);
  for (Op& op : program->ops) {
    if (op.kind == CONCERT_OP_ATTENTION_DECODE) op.attention_decode.length_max = 8192;
  }
  return program;
}

}  // namespace concert::kernels

#endif  // CONCERT_TESTS_UNIT_KERNELS_STEP_RECORDER_H_
