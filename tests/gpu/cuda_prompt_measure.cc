// What the ops of a layer take with the rows of a prompt, each kind by itself, one launch behind
// the other: a line each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/gpu_fixture.h"

namespace concert::test {
namespace {

// A prompt of so many tokens through a layer whose heads are not shared, as those of suite `steps`.
struct Layer {
  const char* name;
  uint32_t tokens, hidden, heads, head_dim, ffn;

  uint32_t columns() const { return heads * head_dim; }
};
constexpr Layer kLayers[] = {{"2048", 2048, 2048, 32, 64, 5632}, {"4096", 1024, 4096, 32, 128, 11264}};
constexpr uint32_t kPageTokens = 16;

class GpuPromptMeasure : public GpuTest {
 protected:
  static constexpr int kLaunches = 30, kWarmUp = 3, kRounds = 3;
  static constexpr policies::Lane kLane = 0;

  // Microseconds a launch: the best of some rounds.
  double Time(const Op& op) {
    const Op* const ops[] = {&op};
    double best_us = 0;
    for (int round = 0; round < kRounds; ++round) {
      Clock::time_point start;
      for (int i = 0; i < kWarmUp + kLaunches; ++i) {
        if (i == kWarmUp) {
          Finish(kLane);
          start = Clock::now();
        }
        const absl::Status status =
            device().Launch({.planned = {.count = 1, .lane = kLane}, .ops = ops});
        EXPECT_TRUE(status.ok()) << status;
      }
      Finish(kLane);
      const double us = MicrosecondsSince(start) / kLaunches;
      if (round == 0 || us < best_us) best_us = us;
    }
    return best_us;
  }

  void Measure(const Layer& layer, std::FILE* file);
};

// Random numbers everywhere: products of zeros take less power, and so less time.
void Fill(HostMirror& memory) {
  std::mt19937 random(20261130);
  std::normal_distribution<float> normal;
  std::vector<uint8_t> numbers(1 << 20);
  for (size_t at = 0; at < numbers.size(); at += 2)
    ElementFromFloat(Dtype::kBf16, normal(random), &numbers[at]);
  for (uint64_t at = 0; at < memory.bytes().size(); at += numbers.size()) {
    std::memcpy(&memory.bytes()[at], numbers.data(),
                std::min<uint64_t>(numbers.size(), memory.bytes().size() - at));
  }
}

void GpuPromptMeasure::Measure(const Layer& layer, std::FILE* file) {
  const uint64_t rows = layer.tokens, widest = std::max(2 * layer.ffn, 3 * layer.columns());
  const uint64_t part = 2 * std::max<uint64_t>(rows, widest) * widest;  // of each operand, bytes
  HostMirror memory(device(), 4 * part, 0);
  Fill(memory);
  // Positions, slots, pages in their order; lengths; starts.
  HostMirror indices(device(), 4 * (rows + 4), 0);
  for (uint32_t i = 0; i < rows; ++i) std::memcpy(&indices.bytes()[4 * i], &i, 4);
  const uint32_t ends[] = {layer.tokens, 0, layer.tokens};
  std::memcpy(&indices.bytes()[4 * rows], ends, sizeof(ends));
  indices.Upload();
  const Address a = memory.address(), b = a + part, c = b + part, d = c + part;
  const auto print = [&](const std::string& what, const Op& op, double flops, double bytes) {
    const double us = Time(op);
    std::fprintf(file, "%s,%s,%.1f,%.0f,%.2f\n", layer.name, what.c_str(), us, flops / us / 1e6,
                 bytes / us / 1e6);
  };
  const auto gemm = [&](const char* what, uint32_t n, uint32_t k) {
    Op op = SquareGemm(a, b, c, layer.tokens);
    op.gemm.n = op.gemm.ldd = n, op.gemm.k = op.gemm.lda = op.gemm.ldw = k;
    print(what, op, 2.0 * layer.tokens * n * k, 2.0 * (rows * (n + k) + uint64_t{n} * k));
  };
  gemm("qkv", 3 * layer.columns(), layer.hidden);
  gemm("o", layer.hidden, layer.columns());
  gemm("gate and up", 2 * layer.ffn, layer.hidden);
  gemm("down", layer.hidden, layer.ffn);
  {
    Op op;
    op.kind = CONCERT_OP_RMS_NORM;
    op.rms_norm = {.rows = layer.tokens,
                   .columns = layer.hidden,
                   .x = a,
                   .residual = b,
                   .weight = c,
                   .out = d,
                   .x_stride = layer.hidden,
                   .residual_stride = layer.hidden,
                   .out_stride = layer.hidden,
                   .epsilon = 1e-6f,
                   .dtype = Dtype::kBf16,
                   .cast_first = false};
    print("rms_norm", op, 0, 8.0 * static_cast<double>(rows) * layer.hidden);
  }
  {
    Op op;
    op.kind = CONCERT_OP_GATED_ACTIVATION;
    op.gated_activation = {.rows = layer.tokens,
                           .columns = layer.ffn,
                           .x = a,
                           .out = d,
                           .x_stride = 2 * layer.ffn,
                           .out_stride = layer.ffn,
                           .dtype = Dtype::kBf16,
                           .activation = kernels::Activation::kSilu,
                           .interleaved = false};
    print("gated_activation", op, 0, 6.0 * static_cast<double>(rows) * layer.ffn);
  }
  const uint32_t stride = 3 * layer.columns(), page = kPageTokens * layer.columns();
  const kernels::KvCacheArgs cache = {.k = b,
                                      .v = c,
                                      .page_stride = page,
                                      .pages = layer.tokens / kPageTokens,
                                      .page_size = kPageTokens,
                                      .token_stride = layer.head_dim,
                                      .head_stride = kPageTokens * layer.head_dim,
                                      .dtype = Dtype::kBf16,
                                      .k_scale = 1,
                                      .v_scale = 1};
  {
    Op op;
    op.kind = CONCERT_OP_ROPE_APPEND;
    op.rope_append = {.rows = layer.tokens,
                      .positions_max = layer.tokens,
                      .q_heads = static_cast<uint16_t>(layer.heads),
                      .kv_heads = static_cast<uint16_t>(layer.heads),
                      .head_dim = static_cast<uint16_t>(layer.head_dim),
                      .rotary_dim = static_cast<uint16_t>(layer.head_dim),
                      .q = a,
                      .k = a + 2 * layer.columns(),
                      .v = a + 4 * layer.columns(),
                      .positions = indices.address(),
                      .slots = indices.address(),
                      .cos_sin = d,
                      .cache = cache,
                      .q_stride = stride,
                      .k_stride = stride,
                      .v_stride = stride,
                      .dtype = Dtype::kBf16,
                      .position_type = kernels::IndexType::kInt32,
                      .slot_type = kernels::IndexType::kInt32,
                      .interleaved = false};
    print("rope_append", op, 0, 12.0 * static_cast<double>(rows) * layer.columns());
  }
  {
    Op op;
    op.kind = CONCERT_OP_ATTENTION_PREFILL;
    op.attention_prefill = {.attention = {.rows = 1,
                                          .length_max = layer.tokens,
                                          .q_heads = static_cast<uint16_t>(layer.heads),
                                          .kv_heads = static_cast<uint16_t>(layer.heads),
                                          .head_dim = static_cast<uint16_t>(layer.head_dim),
                                          .q = a,
                                          .page_table = indices.address(),
                                          .lengths = indices.address() + 4 * rows,
                                          .out = d,
                                          .cache = cache,
                                          .q_stride = stride,
                                          .out_stride = layer.columns(),
                                          .table_stride = layer.tokens / kPageTokens,
                                          .window = 0,
                                          .scale = 0.1f,
                                          .soft_cap = 0},
                            .tokens = layer.tokens,
                            .query_starts = indices.address() + 4 * rows + 4};
    print("attention_prefill", op, 2.0 * rows * rows * layer.columns(), 0);
  }
}

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
