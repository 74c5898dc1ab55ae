#include "tests/gpu/model_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/program/program_op.h"
#include "tests/support/bf16.h"

namespace concert::test {
namespace {

constexpr uint64_t kElementBytes = 2;
constexpr uint32_t kWeights = 1, kState = 2;  // buffers
constexpr double kTheta = 10'000;
// Tokens on both sides of multiples of it are salient: chunks of tokens begin and end there.
constexpr uint32_t kSalientEvery = 32;
const float kUnit =
    std::sqrt(3.0f);  // how far uniform numbers with a standard deviation of 1 reach

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kernels::kArenaAlignment - 1) / kernels::kArenaAlignment *
         kernels::kArenaAlignment;
}

// `to`: `count` elements of bf16, uniform in [middle - reach, middle + reach).
void FillUniform(std::mt19937& random, uint8_t* to, uint64_t count, float middle, float reach) {
  for (uint64_t i = 0; i < count; ++i) {
    const float uniform = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
    const uint16_t element = test::ToBf16(middle + reach * uniform);
    std::memcpy(to + kElementBytes * i, &element, kElementBytes);
  }
}

template <typename T>
void Put(std::vector<uint8_t>& block, uint64_t at, const std::vector<T>& values) {
  std::memcpy(&block[at], values.data(), values.size() * sizeof(T));
}

}  // namespace

std::string ModelShape::Describe() const {
  return absl::StrCat("hidden ", hidden, ", heads ", q_heads, "/", kv_heads, " x ", head_dim, " (",
                      rotary(), " rotated), ffn ", ffn, ", layers ", layers, ", pages of ",
                      page_size, " and ", more_pages, " more and ", free_pages, " free, window ",
                      window, ", cap ", soft_cap, ", ", vocabulary, " words",
                      heads_first ? ", heads first" : "", interleaved ? ", interleaved" : "",
                      qkv_bias ? ", bias" : "", shared_prefix ? ", shared prefix" : "",
                      wide_indices ? ", int64" : "", odd_bindings ? ", odd bindings" : "",
                      ", contexts ", absl::StrJoin(contexts, " "));
}

// Records the step's ops, and which tensors they want.
class ModelRecorder {
 public:
  explicit ModelRecorder(ModelStep& model) : model_(model), shape_(model.shape_) {}

  void Record() {
    AddBindings();
    const float residual_reach = 1 / std::sqrt(2.0f * static_cast<float>(shape_.layers));
    model_.cos_sin_at_ = Take(uint64_t{model_.length_max()} * shape_.rotary() * sizeof(float));
    residual_ = Slot(shape_.hidden);
    Copy(Handle(Binding::kIn), {residual_, 0, 0});
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) AddLayer(layer, residual_reach);
    Norm(Handle(Binding::kOut));
    concert_operand raw = Handle(Binding::kOut);
    raw.offset = RowsBytes(shape_.hidden);
    Copy({residual_, 0, 0}, raw);
    if (shape_.vocabulary != 0) AddLogits();
  }

 private:
  static concert_operand Handle(Binding binding) {
    return {CONCERT_SLOT_HANDLE(static_cast<uint32_t>(binding)), 0, 0};
  }
  uint64_t RowsBytes(uint64_t columns) const { return model_.RowsBytes(columns); }

  void AddBindings() {
    const uint64_t index = shape_.wide_indices ? 8 : 4, rows = shape_.rows();
    for (const uint64_t bytes :
         {RowsBytes(shape_.hidden), index * rows, index * rows, 4 * rows,
          4 * rows * model_.pages_of_row_, RowsBytes(2 * shape_.hidden + shape_.vocabulary)})
      model_.slots_.push_back({CONCERT_SLOT_BINDING, 0, bytes});
  }
  uint32_t Slot(uint64_t columns) {
    model_.slots_.push_back({CONCERT_SLOT_ARENA, 0, RowsBytes(columns)});
    return CONCERT_SLOT_HANDLE(static_cast<uint32_t>(model_.slots_.size() - 1));
  }
  uint64_t Take(uint64_t bytes) {
    const uint64_t at = model_.weight_bytes_;
    model_.weight_bytes_ += Aligned(bytes);
    return at;
  }
  concert_operand Tensor(uint64_t elements, float middle, float reach) {
    const uint64_t at = Take(elements * kElementBytes);
    model_.tensors_.push_back({at, elements, middle, reach});
    return {kWeights, 0, at};
  }
  // A matrix that makes of rows with a standard deviation of 1 others with one of `scale`.
  concert_operand Matrix(uint32_t n, uint32_t k, float scale) {
    return Tensor(uint64_t{n} * k, 0, scale * kUnit / std::sqrt(static_cast<float>(k)));
  }

  concert_descriptor& Add(uint16_t kind) {
    concert_descriptor& op = model_.ops_.emplace_back();
    op = {};
    op.kind = kind;
    return op;
  }
  void Copy(concert_operand src, concert_operand dst) {
    concert_copy_body& body = Add(CONCERT_OP_COPY).body.copy;
    body.src = src, body.dst = dst;
    body.bytes = RowsBytes(shape_.hidden);
  }
  // residual += update, if there is one; out = gain * normalised(residual).
  void Norm(concert_operand out) {
    concert_rms_norm_body& body = Add(CONCERT_OP_RMS_NORM).body.rms_norm;
    body.rows = shape_.rows(), body.columns = shape_.hidden;
    body.x = {update_ != 0 ? update_ : residual_, 0, 0};
    body.x_stride = body.out_stride = shape_.hidden;
    if (update_ != 0) {
      body.residual = {residual_, 0, 0};
      body.residual_stride = shape_.hidden;
    }
    body.weight = Tensor(shape_.hidden, 1, 0.5f), body.out = out;
    body.epsilon = 1e-6f;
    body.dtype = CONCERT_ABI_BF16;
  }
  uint32_t Norm() {
    const uint32_t normed = Slot(shape_.hidden);
    Norm({normed, 0, 0});
    return normed;
  }
  void Gemm(concert_operand a, concert_operand w, uint32_t n, uint32_t k, concert_operand bias,
            concert_operand d) {
    concert_gemm_body& body = Add(CONCERT_OP_GEMM).body.gemm;
    body.m = shape_.rows(), body.n = n, body.k = k, body.batch = 1;
    body.a = a, body.w = w, body.d = d, body.bias = bias;
    body.lda = body.ldw = k, body.ldd = n;
    body.alpha = 1;
    body.dtype = CONCERT_ABI_BF16;
  }
  uint32_t Gemm(uint32_t a, concert_operand w, uint32_t n, uint32_t k, concert_operand bias = {}) {
    const uint32_t d = Slot(n);
    Gemm({a, 0, 0}, w, n, k, bias, {d, 0, 0});
    return d;
  }
  void AddLogits() {
    const uint32_t n = shape_.vocabulary, k = shape_.hidden;
    concert_operand logits = Handle(Binding::kOut);
    logits.offset = RowsBytes(2 * k);
    const concert_operand bias = shape_.qkv_bias ? Tensor(n, 0, 0.5f) : concert_operand{};
    Gemm(Handle(Binding::kOut), Matrix(n, k, 1), n, k, bias, logits);
  }

  void SetCache(uint32_t layer, concert_kv_cache_abi& cache) const {
    cache.k = {kState, 0, model_.CacheAt(layer, /*values=*/false)};
    cache.v = {kState, 0, model_.CacheAt(layer, /*values=*/true)};
    cache.pages = model_.pages_, cache.page_size = shape_.page_size;
    cache.page_stride = uint64_t{shape_.page_size} * shape_.kv_columns();
    cache.token_stride = shape_.heads_first ? shape_.head_dim : shape_.kv_columns();
    cache.head_stride = shape_.heads_first ? shape_.page_size * shape_.head_dim : shape_.head_dim;
  }
  template <typename Body>
  void SetHeads(Body& body) const {
    body.rows = shape_.rows();
    body.q_heads = static_cast<uint16_t>(shape_.q_heads);
    body.kv_heads = static_cast<uint16_t>(shape_.kv_heads);
    body.head_dim = static_cast<uint16_t>(shape_.head_dim);
    body.q_stride = shape_.qkv_columns();
    body.dtype = CONCERT_ABI_BF16;
  }
  void Rope(uint32_t layer, uint32_t qkv) {
    concert_rope_append_body& body = Add(CONCERT_OP_ROPE_APPEND).body.rope_append;
    SetHeads(body);
    body.positions_max = model_.length_max();
    body.rotary_dim = static_cast<uint16_t>(shape_.rotary());
    body.q = body.k = body.v = {qkv, 0, 0};
    body.k.offset = kElementBytes * shape_.q_columns();
    body.v.offset = body.k.offset + kElementBytes * shape_.kv_columns();
    body.positions = Handle(Binding::kPositions), body.slots = Handle(Binding::kSlots);
    body.cos_sin = {kWeights, 0, model_.cos_sin_at_};
    body.k_stride = body.v_stride = shape_.qkv_columns();
    body.position_dtype = body.slot_dtype =
        shape_.wide_indices ? CONCERT_ABI_INT64 : CONCERT_ABI_INT32;
    body.flags = shape_.interleaved ? CONCERT_ROPE_INTERLEAVED : 0;
    SetCache(layer, body.cache);
  }
  uint32_t Attend(uint32_t layer, uint32_t qkv) {
    const uint32_t attended = Slot(shape_.q_columns());
    concert_attention_decode_body& body = Add(CONCERT_OP_ATTENTION_DECODE).body.attention_decode;
    SetHeads(body);
    body.length_max = model_.length_max();
    body.q = {qkv, 0, 0}, body.out = {attended, 0, 0};
    body.page_table = Handle(Binding::kPages), body.lengths = Handle(Binding::kLengths);
    body.out_stride = shape_.q_columns(), body.table_stride = model_.pages_of_row_;
    body.window = shape_.window, body.soft_cap = shape_.soft_cap;
    body.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    SetCache(layer, body.cache);
    return attended;
  }
  uint32_t Gate(uint32_t x) {
    const uint32_t out = Slot(shape_.ffn);
    concert_gated_activation_body& body = Add(CONCERT_OP_GATED_ACTIVATION).body.gated_activation;
    body.rows = shape_.rows(), body.columns = shape_.ffn;
    body.x = {x, 0, 0}, body.out = {out, 0, 0};
    body.x_stride = 2 * uint64_t{shape_.ffn}, body.out_stride = shape_.ffn;
    body.dtype = CONCERT_ABI_BF16, body.activation = CONCERT_ABI_ACT_SILU;
    body.flags = shape_.interleaved ? CONCERT_GATED_INTERLEAVED : 0;
    return out;
  }

  void AddLayer(uint32_t layer, float residual_reach) {
    const uint32_t hidden = shape_.hidden, columns = shape_.qkv_columns();
    const uint32_t normed = Norm();
    const concert_operand w_qkv = Matrix(columns, hidden, 1);
    const concert_operand bias = shape_.qkv_bias ? Tensor(columns, 0, 0.5f) : concert_operand{};
    const uint32_t qkv = Gemm(normed, w_qkv, columns, hidden, bias);
    Rope(layer, qkv);
    const uint32_t attended = Attend(layer, qkv), q_columns = shape_.q_columns();
    update_ = Gemm(attended, Matrix(hidden, q_columns, residual_reach), hidden, q_columns);
    const uint32_t mlp = Norm();
    const uint32_t gates = Gemm(mlp, Matrix(2 * shape_.ffn, hidden, 1), 2 * shape_.ffn, hidden);
    const uint32_t inner = Gate(gates);
    update_ = Gemm(inner, Matrix(hidden, shape_.ffn, residual_reach), hidden, shape_.ffn);
  }

  ModelStep& model_;
  const ModelShape& shape_;
  uint32_t residual_ = 0, update_ = 0;  // update_: what the next norm adds to the residual
};

ModelStep::ModelStep(const ModelShape& shape, uint32_t seed) : shape_(shape), seed_(seed) {
  std::mt19937 random(seed);
  PlacePages(random);
  cache_bytes_ = Aligned(kElementBytes * cache_tokens() * shape_.kv_columns());
  ModelRecorder(*this).Record();
  PlaceBindings();
  std::mt19937 random_weights(seed);
  FillWeights(random_weights);
  FillState(random);
}

// Pages in an order of their own, the last of them nobody's: it is where tables name no page.
void ModelStep::PlacePages(std::mt19937& random) {
  const auto pages_for = [&](int32_t context) {
    return (static_cast<uint32_t>(context) + shape_.steps - 1) / shape_.page_size + 1;
  };
  const uint32_t rows = shape_.rows();
  uint32_t all = 0;
  for (const int32_t context : shape_.contexts) {
    if (context == kPaddingRow) continue;
    all += pages_for(context);
    pages_of_row_ = std::max(pages_of_row_, pages_for(context));
  }
  pages_of_row_ = std::max(1u, pages_of_row_) + shape_.more_pages;
  pages_ = all + 1 + shape_.free_pages;
  std::vector<int32_t> order(pages_);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  page_table_.assign(uint64_t{rows} * pages_of_row_, order.back());
  auto next = order.begin();
  for (uint32_t row = 0; row < rows; ++row) {
    if (shape_.contexts[row] == kPaddingRow) continue;
    const uint32_t pages = pages_for(shape_.contexts[row]);
    std::copy_n(next, pages, page_table_.begin() + uint64_t{row} * pages_of_row_);
    next += pages;
  }
  if (!shape_.shared_prefix) return;
  const int32_t common = std::min(shape_.contexts[0], shape_.contexts[1]);
  std::copy_n(page_table_.begin(), std::max(common, 0) / static_cast<int32_t>(shape_.page_size),
              page_table_.begin() + pages_of_row_);
}

void ModelStep::PlaceBindings() {
  constexpr uint64_t kGap = 256;
  uint64_t at = kGap;
  for (size_t i = 0; i < kBindings; ++i) {
    offsets_[i] = at + (shape_.odd_bindings ? 1 : 0);
    at += Aligned(slots_[i].bytes + 1) + kGap;
  }
  block_bytes_ = at;
}

void ModelStep::FillWeights(std::mt19937& random) {
  weights_.assign(weight_bytes_, 0);
  for (const Tensor& tensor : tensors_)
    FillUniform(random, &weights_[tensor.offset], tensor.elements, tensor.middle, tensor.reach);
  const uint32_t half = shape_.rotary() / 2;
  auto* cos_sin = reinterpret_cast<float*>(&weights_[cos_sin_at_]);
  for (uint32_t position = 0; position < length_max(); ++position) {
    for (uint32_t i = 0; i < half; ++i) {
      const double angle = position / std::pow(kTheta, static_cast<double>(i) / half);
      cos_sin[i] = static_cast<float>(std::cos(angle));
      cos_sin[half + i] = static_cast<float>(std::sin(angle));
    }
    cos_sin += shape_.rotary();
  }
}

uint64_t ModelStep::HeadAt(uint64_t token, uint32_t head) const {
  const uint64_t page = token / shape_.page_size, in_page = token % shape_.page_size;
  const uint64_t begin = page * shape_.page_size * shape_.kv_columns();
  const uint64_t vector =
      shape_.heads_first ? head * shape_.page_size + in_page : in_page * shape_.kv_heads + head;
  return begin + vector * shape_.head_dim;
}

void ModelStep::FillToken(std::mt19937& random, uint64_t token, float value_scale) {
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    for (const bool values : {false, true}) {
      for (uint32_t head = 0; head < shape_.kv_heads; ++head) {
        const uint64_t at = CacheAt(layer, values) + kElementBytes * HeadAt(token, head);
        FillUniform(random, &state_[at], shape_.head_dim, 0, kUnit * (values ? value_scale : 1));
      }
    }
  }
}

// One of thousands of tokens would not be missed. So some have values that are large enough to make
// attention's result about as large as its inputs, which each of them is then a good part of: those
// where chunks may begin or end, and the ends of what the row may see and just may not.
float ModelStep::ValueScale(uint32_t row, uint32_t token) const {
  const auto context = static_cast<uint32_t>(shape_.contexts[row]);
  const uint32_t seen = shape_.window == 0 ? context : std::min(context, shape_.window);
  const uint32_t begin = context + 1 - std::min(context + 1, seen);
  const bool salient = token % kSalientEvery == 0 || token % kSalientEvery == kSalientEvery - 1 ||
                       token == begin || token + 1 == begin || token + 1 == context;
  // Weights are about 1 / seen, and some seen * 2 / kSalientEvery of the tokens are salient.
  return salient ? std::sqrt(static_cast<float>(std::max(seen, kSalientEvery) * kSalientEvery) / 5)
                 : 1;
}

// What no sequence has is NaN, as memory may be that a server has not written: who adds it up,
// however little it weighs, has a result of NaN.
void ModelStep::FillState(std::mt19937& random) {
  state_.assign(CacheAt(shape_.layers, false), kGuard);
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    for (const bool values : {false, true})
      std::memset(&state_[CacheAt(layer, values)], kPoison, cache_bytes_);
  }
  if (shape_.whole_cache) {
    for (uint64_t token = 0; token < cache_tokens(); ++token) FillToken(random, token, 1);
    return;
  }
  for (uint32_t row = 0; row < shape_.rows(); ++row) {
    const auto context = static_cast<uint32_t>(std::max(0, shape_.contexts[row]));
    for (uint32_t token = 0; token < context; ++token) {
      FillToken(random, static_cast<uint64_t>(SlotOf(row, token)), ValueScale(row, token));
    }
  }
}

int64_t ModelStep::SlotOf(uint32_t row, uint32_t token) const {
  if (shape_.contexts[row] == kPaddingRow) return -1;
  const int64_t page = page_table_[uint64_t{row} * pages_of_row_ + token / shape_.page_size];
  return page * shape_.page_size + token % shape_.page_size;
}

StepInputs ModelStep::InputsOf(uint32_t step) const {
  std::mt19937 random(seed_ + 1 + step);
  StepInputs inputs;
  inputs.hidden.resize(uint64_t{shape_.rows()} * shape_.hidden);
  FillUniform(random, reinterpret_cast<uint8_t*>(inputs.hidden.data()), inputs.hidden.size(), 0,
              kUnit);
  for (uint32_t row = 0; row < shape_.rows(); ++row) {
    const bool padding = shape_.contexts[row] == kPaddingRow;
    const uint32_t position = padding ? 0 : static_cast<uint32_t>(shape_.contexts[row]) + step;
    inputs.positions.push_back(position);
    inputs.slots.push_back(SlotOf(row, position));
    inputs.lengths.push_back(padding ? 0 : static_cast<int32_t>(position + 1));
  }
  inputs.pages = page_table_;
  return inputs;
}

std::vector<uint8_t> ModelStep::BlockOf(const StepInputs& inputs) const {
  std::vector<uint8_t> block(block_bytes_, kGuard);
  Put(block, OffsetOf(Binding::kIn), inputs.hidden);
  const auto put_indices = [&](Binding binding, const std::vector<int64_t>& indices) {
    if (shape_.wide_indices) return Put(block, OffsetOf(binding), indices);
    Put(block, OffsetOf(binding), std::vector<int32_t>(indices.begin(), indices.end()));
  };
  put_indices(Binding::kPositions, inputs.positions);
  put_indices(Binding::kSlots, inputs.slots);
  Put(block, OffsetOf(Binding::kLengths), inputs.lengths);
  Put(block, OffsetOf(Binding::kPages), inputs.pages);
  std::memset(&block[OffsetOf(Binding::kOut)], kPoison, BytesOf(Binding::kOut));
  return block;
}

std::vector<uint16_t> ModelStep::HiddenOf(std::span<const uint8_t> block, bool normed) const {
  return ElementsOf(block, normed ? 0 : RowsBytes(shape_.hidden), shape_.hidden);
}
std::vector<uint16_t> ModelStep::LogitsOf(std::span<const uint8_t> block) const {
  return ElementsOf(block, RowsBytes(2 * shape_.hidden), shape_.vocabulary);
}
std::vector<uint16_t> ModelStep::ElementsOf(std::span<const uint8_t> block, uint64_t offset,
                                            uint64_t columns) const {
  std::vector<uint16_t> elements(shape_.rows() * columns);
  std::memcpy(elements.data(), block.data() + OffsetOf(Binding::kOut) + offset, RowsBytes(columns));
  return elements;
}

std::array<kernels::BufferRange, 3> ModelStep::Buffers(const Memory& memory) const {
  return {{{},
           {.address = memory.weights, .bytes = weights_.size()},
           {.address = memory.state, .bytes = state_.size()}}};
}

uint64_t ModelStep::ArenaBytes(const Memory& memory) const {
  const auto buffers = Buffers(memory);
  const auto plan = kernels::PlanArena(SourceOf(buffers));
  return plan.ok() ? plan->bytes : 0;  // Bind says why
}

absl::StatusOr<std::unique_ptr<kernels::Program>> ModelStep::Bind(const Memory& memory,
                                                                  kernels::Address arena) const {
  const auto buffers = Buffers(memory);
  const kernels::ProgramSource source = SourceOf(buffers);
  const absl::StatusOr<kernels::ArenaPlan> plan = kernels::PlanArena(source);
  if (!plan.ok()) return plan.status();
  return kernels::BindProgram(source, *plan, arena);
}

kernels::ProgramArgs ModelStep::RunOf(const kernels::Program& program,
                                      kernels::Address block) const {
  kernels::ProgramArgs run{.program = &program, .bindings = {}};
  for (size_t i = 0; i < kBindings; ++i) run.bindings[i] = block + offsets_[i];
  return run;
}

HostModel::HostModel(const ModelStep& model) : model_(model), state_(model.state()) {
  const ModelStep::Memory memory = {
      .weights = reinterpret_cast<kernels::Address>(model.weights().data()),
      .state = reinterpret_cast<kernels::Address>(state_.data())};
  arena_.resize(model.ArenaBytes(memory) + kernels::kArenaAlignment);
  absl::StatusOr<std::unique_ptr<kernels::Program>> program =
      model.Bind(memory, Aligned(reinterpret_cast<kernels::Address>(arena_.data())));
  EXPECT_TRUE(program.ok()) << program.status();
  program_ = *std::move(program);
}

std::vector<uint8_t> HostModel::Run(const StepInputs& inputs) {
  std::vector<uint8_t> block = model_.BlockOf(inputs);
  std::memset(arena_.data(), kPoison, arena_.size());
  kernels::Op op;
  op.kind = CONCERT_OP_PROGRAM;
  op.program = model_.RunOf(*program_, reinterpret_cast<kernels::Address>(block.data()));
  const kernels::Op* const part = &op;
  kernels::ComputeProgram({&part, 1});
  return block;
}

}  // namespace concert::test
