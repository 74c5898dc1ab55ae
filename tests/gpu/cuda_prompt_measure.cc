// What the ops of a layer take with the rows of a prompt, each kind by itself, one launch behind
// the other: a line each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/gpu/gpu_fixture.h"

namespace concert::test {
namespace {

// A prompt of so many tokens through a layer whose heads are not shared, as those of suite `steps`.
struct Layer {
  const char* name;
  uint32_t tokens, hidden, heads, head_dim, ffn;

  uint32_t columns() const { return heads * head_dim; }
  uint32_t qkv_columns() const { return 3 * columns(); }
};
constexpr Layer kLayers[] = {{"2048", 2048, 2048, 32, 64, 5632},
                             {"4096", 1024, 4096, 32, 128, 11264}};
constexpr uint32_t kPageTokens = 16;

// The layer's ops, each with operands of its own in `parts`, which are large enough for any.
class LayerOps {
 public:
  LayerOps(const Layer& layer, CudaDevice& device)
      : layer_(layer),
        part_bytes_(uint64_t{2} * std::max({layer.tokens, 2 * layer.ffn, layer.qkv_columns()}) *
                    std::max(2 * layer.ffn, layer.qkv_columns())),
        parts_(device, 4 * part_bytes_, 0),
        indices_(device, 4 * (layer.tokens + 3), 0) {
    parts_.RepeatNormal(parts_.bytes().size(), /*seed=*/20261130);
    parts_.Upload();
    // Positions, slots and pages in their order; then the length; then starts.
    for (uint32_t i = 0; i < layer.tokens; ++i) std::memcpy(&indices_.bytes()[4 * i], &i, 4);
    const uint32_t ends[] = {layer.tokens, 0, layer.tokens};
    std::memcpy(&indices_.bytes()[4 * layer.tokens], ends, sizeof(ends));
    indices_.Upload();
  }

  Op Gemm(uint32_t n, uint32_t k) const {
    Op op = SquareGemm(Part(0), Part(1), Part(2), layer_.tokens);
    op.gemm.n = op.gemm.ldd = n, op.gemm.k = op.gemm.lda = op.gemm.ldw = k;
    return op;
  }
  Op Norm() const {
    Op op;
    op.kind = CONCERT_OP_RMS_NORM;
    op.rms_norm = {.rows = layer_.tokens,
                   .columns = layer_.hidden,
                   .x = Part(0),
                   .residual = Part(1),
                   .weight = Part(2),
                   .out = Part(3),
                   .x_stride = layer_.hidden,
                   .residual_stride = layer_.hidden,
                   .out_stride = layer_.hidden,
                   .epsilon = 1e-6f,
                   .dtype = Dtype::kBf16,
                   .cast_first = false};
    return op;
  }
  Op Gate() const {
    Op op;
    op.kind = CONCERT_OP_GATED_ACTIVATION;
    op.gated_activation = {.rows = layer_.tokens,
                           .columns = layer_.ffn,
                           .x = Part(0),
                           .out = Part(3),
                           .x_stride = 2 * layer_.ffn,
                           .out_stride = layer_.ffn,
                           .dtype = Dtype::kBf16,
                           .activation = kernels::Activation::kSilu,
                           .interleaved = false};
    return op;
  }
  Op Rope() const {
    Op op;
    op.kind = CONCERT_OP_ROPE_APPEND;
    op.rope_append = {.rows = layer_.tokens,
                      .positions_max = layer_.tokens,
                      .q_heads = heads(),
                      .kv_heads = heads(),
                      .head_dim = head_dim(),
                      .rotary_dim = head_dim(),
                      .q = Part(0),
                      .k = Part(0) + 2 * layer_.columns(),
                      .v = Part(0) + 4 * layer_.columns(),
                      .positions = indices_.address(),
                      .slots = indices_.address(),
                      .cos_sin = Part(3),
                      .cache = Cache(),
                      .q_stride = layer_.qkv_columns(),
                      .k_stride = layer_.qkv_columns(),
                      .v_stride = layer_.qkv_columns(),
                      .dtype = Dtype::kBf16,
                      .position_type = kernels::IndexType::kInt32,
                      .slot_type = kernels::IndexType::kInt32,
                      .interleaved = false};
    return op;
  }
  Op Attention() const {
    Op op;
    op.kind = CONCERT_OP_ATTENTION_PREFILL;
    const Address length = indices_.address() + 4 * layer_.tokens;
    op.attention_prefill = {.attention = {.rows = 1,
                                          .length_max = layer_.tokens,
                                          .q_heads = heads(),
                                          .kv_heads = heads(),
                                          .head_dim = head_dim(),
                                          .q = Part(0),
                                          .page_table = indices_.address(),
                                          .lengths = length,
                                          .out = Part(3),
                                          .cache = Cache(),
                                          .q_stride = layer_.qkv_columns(),
                                          .out_stride = layer_.columns(),
                                          .table_stride = layer_.tokens / kPageTokens,
                                          .window = 0,
                                          .scale = 0.1f,
                                          .soft_cap = 0},
                            .tokens = layer_.tokens,
                            .query_starts = length + 4};
    return op;
  }

 private:
  Address Part(int i) const { return parts_.address() + i * part_bytes_; }
  uint16_t heads() const { return static_cast<uint16_t>(layer_.heads); }
  uint16_t head_dim() const { return static_cast<uint16_t>(layer_.head_dim); }
  kernels::KvCacheArgs Cache() const {
    return {.k = Part(1),
            .v = Part(2),
            .page_stride = uint64_t{kPageTokens} * layer_.columns(),
            .pages = layer_.tokens / kPageTokens,
            .page_size = kPageTokens,
            .token_stride = layer_.head_dim,
            .head_stride = kPageTokens * layer_.head_dim,
            .dtype = Dtype::kBf16,
            .k_scale = 1,
            .v_scale = 1};
  }

  const Layer& layer_;
  const uint64_t part_bytes_;
  HostMirror parts_, indices_;
};

class GpuPromptMeasure : public GpuTest {
 protected:
  static constexpr int kRounds = 3;

  // Microseconds a launch: the best of some rounds.
  double Time(const Op& op) {
    double best_us = MicrosecondsEach(op);
    for (int round = 1; round < kRounds; ++round) best_us = std::min(best_us, MicrosecondsEach(op));
    return best_us;
  }

  void Measure(const Layer& layer, std::FILE* file) {
    const LayerOps ops(layer, device());
    const double rows = layer.tokens;
    const auto print = [&](const char* what, const Op& op, double flops, double bytes) {
      const double us = Time(op);
      std::fprintf(file, "%s,%s,%.1f,%.0f,%.2f\n", layer.name, what, us, flops / us / 1e6,
                   bytes / us / 1e6);
    };
    const auto print_gemm = [&](const char* what, uint32_t n, uint32_t k) {
      print(what, ops.Gemm(n, k), 2.0 * rows * n * k, 2.0 * (rows * (n + k) + double{1} * n * k));
    };
    print_gemm("qkv", layer.qkv_columns(), layer.hidden);
    print_gemm("o", layer.hidden, layer.columns());
    print_gemm("gate and up", 2 * layer.ffn, layer.hidden);
    print_gemm("down", layer.hidden, layer.ffn);
    print("rms_norm", ops.Norm(), 0, 8 * rows * layer.hidden);
    print("gated_activation", ops.Gate(), 0, 6 * rows * layer.ffn);
    print("rope_append", ops.Rope(), 0, 12 * rows * layer.columns());
    print("attention_prefill", ops.Attention(), 2 * rows * rows * layer.columns(), 0);
  }
};

TEST_F(GpuPromptMeasure, Ops) {
  const char* const path = std::getenv("CONCERT_MEASURE_PROMPTS");
  if (path == nullptr) GTEST_SKIP() << "CONCERT_MEASURE_PROMPTS names no file to write to";
  std::FILE* const file = std::fopen(path, "w");
  ASSERT_NE(file, nullptr) << path;
  std::fputs("layer,op,us,tflops,tb_per_s\n", file);
  for (const Layer& layer : kLayers) {
    Measure(layer, file);
    ASSERT_FALSE(HasFailure()) << layer.name;
  }
  std::fclose(file);
}

}  // namespace
}  // namespace concert::test
