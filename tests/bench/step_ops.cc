#include "tests/bench/step_ops.h"

#include <cmath>
#include <utility>

namespace concert::bench {
namespace {

constexpr uint64_t kElementBytes = 2;

class Recorder {
 public:
  Recorder(const StepData& data, const StepSlices& tensors, const StepBindings& bindings,
           const std::function<Slice(uint64_t)>& intermediate)
      : model_(data.model()),
        data_(data),
        rows_(data.rows()),
        tensors_(tensors),
        bindings_(bindings),
        intermediate_(intermediate) {}

  std::vector<StepOp> Run() {
    residual_ = Rows(model_.hidden);
    if (model_.vocabulary > 0) {
      ops_.push_back(EmbeddingOp{.rows = rows_,
                                 .columns = model_.hidden,
                                 .vocabulary = model_.vocabulary,
                                 .ids = bindings_.in,
                                 .table = tensors_.table,
                                 .out = residual_});
    } else {
      ops_.push_back(CopyOp{
          .src = bindings_.in, .dst = residual_, .bytes = kElementBytes * rows_ * model_.hidden});
    }
    for (const LayerSlices& layer : tensors_.layers) AddLayer(layer);
    AddEnd();
    return std::move(ops_);
  }

 private:
  Slice Rows(uint64_t columns) const { return intermediate_(kElementBytes * rows_ * columns); }

  // residual += update, if there is one; out = weight * normalised(residual).
  void AddNorm(Slice weight, Slice out) {
    RmsNormOp norm{.rows = rows_, .columns = model_.hidden, .weight = weight, .out = out};
    norm.x = update_.buffer != nullptr ? update_ : residual_;
    if (update_.buffer != nullptr) norm.residual = residual_;
    ops_.push_back(norm);
  }
  Slice Norm(Slice weight) {
    const Slice normed = Rows(model_.hidden);
    AddNorm(weight, normed);
    return normed;
  }

  void AddGemm(Slice x, Slice w, uint32_t n, uint32_t k, Slice out) {
    ops_.push_back(GemmOp{.m = rows_, .n = n, .k = k, .a = x, .w = w, .d = out});
  }
  Slice Gemm(Slice x, Slice w, uint32_t n, uint32_t k) {
    const Slice product = Rows(n);
    AddGemm(x, w, n, k, product);
    return product;
  }

  void AddLayer(const LayerSlices& layer) {
    const Slice normed = Norm(layer.norm);
    const Slice qkv = Gemm(normed, layer.qkv, model_.qkv_columns(), model_.hidden);
    update_ = Gemm(Attend(layer, qkv), layer.out, model_.hidden, model_.q_columns());
    const Slice mlp = Norm(layer.mlp_norm);
    const Slice gate_up = Gemm(mlp, layer.gate_up, 2 * model_.ffn, model_.hidden);
    const Slice inner = Rows(model_.ffn);
    ops_.push_back(
        GatedActivationOp{.rows = rows_, .columns = model_.ffn, .x = gate_up, .out = inner});
    update_ = Gemm(inner, layer.down, model_.hidden, model_.ffn);
  }

  Slice Attend(const LayerSlices& layer, Slice qkv) {
    const uint32_t stride = model_.qkv_columns();
    const KvCache cache{.k = layer.keys,
                        .v = layer.values,
                        .pages = data_.pages(),
                        .page_size = StepData::kPageSize,
                        .page_stride = StepData::kPageSize * model_.kv_columns(),
                        .token_stride = model_.head_dim,
                        .head_stride = StepData::kPageSize * model_.head_dim};
    Slice k = qkv, v = qkv;
    k.offset += kElementBytes * model_.q_columns();
    v.offset = k.offset + kElementBytes * model_.kv_columns();
    ops_.push_back(RopeAppendOp{.rows = rows_,
                                .q_heads = model_.heads,
                                .kv_heads = model_.kv_heads,
                                .head_dim = model_.head_dim,
                                .positions_max = data_.client().longest(),
                                .q = qkv,
                                .k = k,
                                .v = v,
                                .positions = bindings_.positions,
                                .slots = bindings_.slots,
                                .cos_sin = tensors_.cos_sin,
                                .cache = cache,
                                .q_stride = stride,
                                .k_stride = stride,
                                .v_stride = stride});
    const Slice attended = Rows(model_.q_columns());
    if (data_.client().is_prefill()) {
      AttentionPrefillOp attention{.tokens = rows_, .sequences = data_.batch()};
      attention.query_starts = tensors_.query_starts;
      AddAttention(attention, cache, qkv, attended);
    } else {
      AddAttention(AttentionDecodeOp{.rows = rows_}, cache, qkv, attended);
    }
    return attended;
  }

  // With what the attention of both roles has.
  template <class Op>
  void AddAttention(Op attention, const KvCache& cache, Slice qkv, Slice out) {
    attention.q_heads = model_.heads;
    attention.kv_heads = model_.kv_heads;
    attention.head_dim = model_.head_dim;
    attention.length_max = data_.client().longest();
    attention.q = qkv;
    attention.lengths = bindings_.lengths;
    attention.out = out;
    attention.cache = cache;
    attention.page_table = bindings_.pages;
    attention.q_stride = model_.qkv_columns();
    attention.table_stride = data_.pages_of_sequence();
    attention.scale = 1 / std::sqrt(static_cast<float>(model_.head_dim));
    ops_.push_back(attention);
  }

  // What follows is of the last row of each sequence: an embedding gathers them.
  Slice LastRows(Slice x) {
    if (!data_.client().is_prefill()) return x;
    const uint32_t all = std::exchange(rows_, data_.batch());
    const Slice last = Rows(model_.hidden);
    ops_.push_back(EmbeddingOp{.rows = rows_,
                               .columns = model_.hidden,
                               .vocabulary = all,
                               .ids = tensors_.last_rows,
                               .table = x,
                               .out = last});
    return last;
  }

  void AddEnd() {
    if (model_.vocabulary == 0) return AddNorm(tensors_.final_norm, bindings_.out);
    const Slice normed = LastRows(Norm(tensors_.final_norm));
    AddGemm(normed, tensors_.table, model_.vocabulary, model_.hidden, tensors_.logits);
    ops_.push_back(ArgmaxOp{.rows = rows_,
                            .columns = model_.vocabulary,
                            .x = tensors_.logits,
                            .indices = bindings_.out});
  }

  const StepModel& model_;
  const StepData& data_;
  uint32_t rows_;  // of the ops that follow
  const StepSlices& tensors_;
  const StepBindings& bindings_;
  const std::function<Slice(uint64_t)>& intermediate_;
  std::vector<StepOp> ops_;
  Slice residual_, update_;  // update_: what the next norm adds to the residual
};

struct SubmitTo {
  Queue& queue;
  Ticket operator()(const CopyOp& op) const { return queue.Copy(op); }
  Ticket operator()(const EmbeddingOp& op) const { return queue.Embedding(op); }
  Ticket operator()(const RmsNormOp& op) const { return queue.RmsNorm(op); }
  Ticket operator()(const GemmOp& op) const { return queue.Gemm(op); }
  Ticket operator()(const RopeAppendOp& op) const { return queue.RopeAppend(op); }
  Ticket operator()(const AttentionDecodeOp& op) const { return queue.AttentionDecode(op); }
  Ticket operator()(const AttentionPrefillOp& op) const { return queue.AttentionPrefill(op); }
  Ticket operator()(const GatedActivationOp& op) const { return queue.GatedActivation(op); }
  Ticket operator()(const ArgmaxOp& op) const { return queue.Argmax(op); }
};

}  // namespace

Ticket Submit(Queue& queue, const StepOp& op) { return std::visit(SubmitTo{queue}, op); }

std::vector<StepOp> MakeStepOps(const StepData& data, const StepSlices& tensors,
                                const StepBindings& bindings,
                                const std::function<Slice(uint64_t)>& intermediate) {
  return Recorder(data, tensors, bindings, intermediate).Run();
}

}  // namespace concert::bench
