#include "decode.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "bf16.h"

namespace demo {
namespace {

using concert::Buffer;
using concert::Result;
using concert::Session;
using concert::Slice;

constexpr std::chrono::seconds kStepTimeout{30};
constexpr uint32_t kPageSize = 16;  // tokens
constexpr uint64_t kElementBytes = sizeof(uint16_t), kIndexBytes = sizeof(int32_t);

// A row for each position: the cosines and then the sines of kHeadDim / 2 angles.
std::vector<float> CosSin(uint32_t positions) {
  constexpr uint32_t kHalf = kHeadDim / 2;
  std::vector<float> table(uint64_t{positions} * kHeadDim);
  for (uint32_t position = 0; position < positions; ++position) {
    float* row = &table[uint64_t{position} * kHeadDim];
    for (uint32_t i = 0; i < kHalf; ++i) {
      const double angle = position / std::pow(kTheta, static_cast<double>(i) / kHalf);
      row[i] = static_cast<float>(std::cos(angle));
      row[kHalf + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace

Weights RandomWeights(uint32_t seed) {
  seed *= 1000;
  const auto gains = [&] { return RandomBf16(kHidden, ++seed, 1, 0.5f); };
  // Outputs are about as large as inputs.
  const auto matrix = [&](uint64_t rows, uint32_t columns) {
    return RandomBf16(rows * columns, ++seed, 0, std::sqrt(3.0f / static_cast<float>(columns)));
  };
  Weights weights = {.table = RandomBf16(uint64_t{kVocabulary} * kHidden, ++seed),
                     .norm = gains(),
                     .head = matrix(kVocabulary, kHidden),
                     .layers = {}};
  for (uint32_t i = 0; i < kLayers; ++i) {
    weights.layers.push_back({.norm = gains(),
                              .qkv = matrix(kQkvColumns, kHidden),
                              .out = matrix(kHidden, kQColumns),
                              .mlp_norm = gains(),
                              .gate_up = matrix(2 * kInner, kHidden),
                              .down = matrix(kHidden, kInner)});
  }
  return weights;
}

// Records the step. What it submits to the program's queue runs in that order, again and again.
class Decoder::Recorder {
 public:
  explicit Recorder(Decoder& decoder)
      : decoder_(decoder), rows_(decoder.sequences_), program_(decoder.program_) {}

  void Record() {
    // Bindings, in the order in which a run names them.
    tokens_ = Keep(program_.Binding(4 * rows_ * kIndexBytes));
    positions_ = Slice(slots_.back(), rows_ * kIndexBytes);
    cache_slots_ = Slice(slots_.back(), 2 * rows_ * kIndexBytes);
    lengths_ = Slice(slots_.back(), 3 * rows_ * kIndexBytes);
    pages_ = Keep(program_.Binding(decoder_.pages_.bytes()));
    const Slice following = Keep(program_.Binding(rows_ * kIndexBytes));

    residual_ = Rows(kHidden);
    Add(queue().Embedding({.rows = rows_,
                           .columns = kHidden,
                           .vocabulary = kVocabulary,
                           .ids = tokens_,
                           .table = decoder_.weights_.table,
                           .out = residual_}));
    for (uint32_t i = 0; i < kLayers; ++i) {
      AddLayer(decoder_.weights_.layers[i], decoder_.caches_[i]);
    }
    const Slice normed = Norm(decoder_.weights_.norm);
    AddGemm(normed, decoder_.weights_.head, kVocabulary, kHidden, decoder_.logits_);
    Add(queue().Argmax(
        {.rows = rows_, .columns = kVocabulary, .x = decoder_.logits_, .indices = following}));
    program_.End().Check();
  }

 private:
  concert::Queue& queue() { return program_.queue(); }

  void Add(const concert::Ticket& op) {
    op.submit_status().Check();
    ++decoder_.ops_;
  }

  // Ops name slots until the program is registered; it keeps what they mean.
  Slice Keep(Result<Buffer> slot) {
    slots_.push_back(std::move(slot).value());
    return slots_.back();
  }

  // What one op passes to another: a row for each sequence.
  Slice Rows(uint64_t columns) { return Keep(program_.Arena(kElementBytes * rows_ * columns)); }

  void AddGemm(Slice x, Slice w, uint32_t n, uint32_t k, Slice out) {
    Add(queue().Gemm({.m = rows_, .n = n, .k = k, .a = x, .w = w, .d = out}));
  }
  Slice Gemm(Slice x, Slice w, uint32_t n, uint32_t k) {
    const Slice product = Rows(n);
    AddGemm(x, w, n, k, product);
    return product;
  }

  // Adds what the layer before has left to the residual, then normalises that.
  Slice Norm(Slice weight) {
    const Slice normed = Rows(kHidden);
    concert::RmsNormOp norm{.rows = rows_, .columns = kHidden, .weight = weight, .out = normed};
    norm.x = update_.buffer != nullptr ? update_ : residual_;
    if (update_.buffer != nullptr) norm.residual = residual_;
    Add(queue().RmsNorm(norm));
    return normed;
  }

  void AddLayer(const LayerWeights<Buffer>& layer, const Cache& cache) {
    const Slice qkv = Gemm(Norm(layer.norm), layer.qkv, kQkvColumns, kHidden);
    update_ = Gemm(Attend(qkv, cache), layer.out, kHidden, kQColumns);
    const Slice gate_up = Gemm(Norm(layer.mlp_norm), layer.gate_up, 2 * kInner, kHidden);
    const Slice inner = Rows(kInner);
    Add(queue().GatedActivation({.rows = rows_, .columns = kInner, .x = gate_up, .out = inner}));
    update_ = Gemm(inner, layer.down, kHidden, kInner);
  }

  // Appends the new keys and values to the cache, then attends to all that is there.
  Slice Attend(Slice qkv, const Cache& cache) {
    const concert::KvCache pages{.k = cache.keys,
                                 .v = cache.values,
                                 .pages = rows_ * decoder_.pages_of_sequence_,
                                 .page_size = kPageSize};
    Slice k = qkv, v = qkv;
    k.offset += kElementBytes * kQColumns;
    v.offset = k.offset + kElementBytes * kKvColumns;
    const uint32_t length_max = decoder_.pages_of_sequence_ * kPageSize;
    Add(queue().RopeAppend({.rows = rows_,
                            .q_heads = kHeads,
                            .kv_heads = kKvHeads,
                            .head_dim = kHeadDim,
                            .positions_max = length_max,
                            .q = qkv,
                            .k = k,
                            .v = v,
                            .positions = positions_,
                            .slots = cache_slots_,
                            .cos_sin = decoder_.cos_sin_,
                            .cache = pages,
                            .q_stride = kQkvColumns,
                            .k_stride = kQkvColumns,
                            .v_stride = kQkvColumns}));
    const Slice attended = Rows(kQColumns);
    Add(queue().AttentionDecode({.rows = rows_,
                                 .q_heads = kHeads,
                                 .kv_heads = kKvHeads,
                                 .head_dim = kHeadDim,
                                 .length_max = length_max,
                                 .q = qkv,
                                 .lengths = lengths_,
                                 .out = attended,
                                 .cache = pages,
                                 .page_table = pages_,
                                 .q_stride = kQkvColumns,
                                 .table_stride = decoder_.pages_of_sequence_,
                                 .scale = 1 / std::sqrt(static_cast<float>(kHeadDim))}));
    return attended;
  }

  Decoder& decoder_;
  const uint32_t rows_;
  concert::Program& program_;
  std::vector<Buffer> slots_;
  Slice tokens_, positions_, cache_slots_, lengths_, pages_;  // what each run brings
  Slice residual_, update_;  // update_: what the next norm adds to the residual
};

Decoder::Decoder(const Session& session, const Weights& weights, uint32_t gpu, uint32_t sequences,
                 uint32_t length_max)
    : sequences_(sequences),
      pages_of_sequence_((length_max - 1) / kPageSize + 1),
      lengths_(sequences, 0),
      queue_(session.CreateQueue({.gpu = gpu}).value()),
      program_(session.BeginProgram(gpu).value()) {
  const auto upload = [&](const auto& values) { return Upload(session, gpu, values); };
  weights_ = {.table = upload(weights.table),
              .norm = upload(weights.norm),
              .head = upload(weights.head),
              .layers = {}};
  const uint32_t pages = sequences * pages_of_sequence_;
  const uint64_t cache_bytes = kElementBytes * pages * kPageSize * kKvColumns;
  for (const auto& layer : weights.layers) {
    weights_.layers.push_back({.norm = upload(layer.norm),
                               .qkv = upload(layer.qkv),
                               .out = upload(layer.out),
                               .mlp_norm = upload(layer.mlp_norm),
                               .gate_up = upload(layer.gate_up),
                               .down = upload(layer.down)});
    caches_.push_back({.keys = session.Allocate(cache_bytes, gpu).value(),
                       .values = session.Allocate(cache_bytes, gpu).value()});
  }
  cos_sin_ = upload(CosSin(pages_of_sequence_ * kPageSize));
  // A server hands pages out as sequences grow, so those of one lie anywhere; here every
  // `sequences`th is a sequence's.
  std::vector<int32_t> page_table;
  for (uint32_t row = 0; row < sequences; ++row) {
    for (uint32_t i = 0; i < pages_of_sequence_; ++i) {
      page_table.push_back(static_cast<int32_t>(i * sequences + row));
    }
  }
  pages_ = upload(page_table);
  inputs_ = session.Allocate(4 * sequences * kIndexBytes, gpu).value();
  following_ = session.Allocate(sequences * kIndexBytes, gpu).value();
  logits_ = upload(Poison(uint64_t{sequences} * kVocabulary));
  Recorder(*this).Record();
}

concert::Status Decoder::Step(std::vector<int32_t>& tokens) {
  // Tokens, their positions, their slots in the cache and the lengths that count them.
  std::vector<int32_t> inputs = tokens;
  inputs.resize(4 * sequences_);
  for (uint32_t row = 0; row < sequences_; ++row) {
    const bool rests = tokens[row] < 0;
    const uint32_t position = lengths_[row], page = position / kPageSize * sequences_ + row;
    inputs[sequences_ + row] = position;
    inputs[2 * sequences_ + row] = rests ? -1 : page * kPageSize + position % kPageSize;
    inputs[3 * sequences_ + row] = rests ? 0 : ++lengths_[row];
  }
  inputs_.Write(inputs.data(), inputs_.bytes()).Check();
  const concert::Ticket done =
      queue_.Run({.program = program_, .bindings = {inputs_, pages_, following_}});
  if (concert::Status status = done.Wait(kStepTimeout); !status.ok()) return status;
  return following_.Read(tokens.data(), following_.bytes());
}

std::vector<uint16_t> Decoder::Logits() const { return Download(logits_); }

}  // namespace demo
