// How fast attention_prefill multiplies. That its results are right tests/conformance shows.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "tests/gpu/gpu_fixture.h"

namespace concert::test {
namespace {

// Each of `sequences` has `length` tokens, of which the last `chunk` are new.
struct PrefillShape {
  const char* name;
  uint32_t sequences, chunk, length, q_heads, kv_heads, head_dim;
  uint32_t page_size = 16;
  Dtype cache = Dtype::kBf16;

  uint32_t tokens() const { return sequences * chunk; }
  uint32_t columns() const { return q_heads * head_dim; }
  uint32_t pages_of_sequence() const { return (length + page_size - 1) / page_size; }
  uint32_t pages() const { return sequences * pages_of_sequence(); }
  uint64_t page_elements() const { return uint64_t{page_size} * kv_heads * head_dim; }
  double flops() const {
    const double attended = length - (chunk - 1) / 2.0;
    return 4.0 * tokens() * attended * columns();
  }

  // Places in one buffer: q, out, k, v, the page table, lengths, starts.
  uint64_t rows_bytes() const { return uint64_t{2} * tokens() * columns(); }
  uint64_t k() const { return 2 * rows_bytes(); }
  uint64_t cache_bytes() const { return DtypeBytes(cache) * pages() * page_elements(); }  // k or v
  uint64_t table() const { return k() + 2 * cache_bytes(); }
  uint64_t lengths() const { return table() + uint64_t{4} * pages(); }
  uint64_t starts() const { return lengths() + uint64_t{4} * sequences; }
  uint64_t bytes() const { return starts() + uint64_t{4} * (sequences + 1); }
};

constexpr PrefillShape kShapes[] = {
    {"a prompt, MHA 32 x 64", 1, 2048, 2048, 32, 32, 64},
    {"a prompt, MHA 16 x 128", 1, 4096, 4096, 16, 16, 128},
    {"a prompt, GQA 32/8 x 128", 1, 2048, 2048, 32, 8, 128},
    {"a long prompt, GQA 32/8 x 128", 1, 16384, 16384, 32, 8, 128},
    {"a prompt, GQA 16/8 x 256", 1, 4096, 4096, 16, 8, 256},
    {"a prompt, GQA 32/8 x 128, fp8", 1, 2048, 2048, 32, 8, 128, 16, Dtype::kFp8E4m3},
    {"prompts, GQA 32/8 x 128", 16, 512, 512, 32, 8, 128},
    {"chunks, GQA 32/8 x 128", 4, 512, 4096, 32, 8, 128},
    {"a chunk, GQA 32/8 x 128", 1, 512, 32768, 32, 8, 128},
    {"a chunk, GQA 64/8 x 128, pages of one token", 1, 512, 8192, 64, 8, 128, 1},
    {"a chunk, GQA 14/2 x 64", 1, 1024, 8192, 14, 2, 64},
    {"as a decode step, GQA 32/8 x 128", 32, 1, 2048, 32, 8, 128},
};

class GpuPrefillTest : public GpuTest {
 protected:
  // Microseconds a launch, one behind the other.
  double Measure(const PrefillShape& shape, int sm_budget) {
    HostMirror memory(device(), shape.bytes(), 0);
    Fill(shape, memory);
    const Op op = OpOf(shape, memory.address());
    return MicrosecondsEach(op, sm_budget);
  }

 private:
  // Random numbers, and every page once, as an allocator hands them out after a while: anywhere.
  static void Fill(const PrefillShape& shape, HostMirror& memory) {
    std::mt19937 random(20261125);
    memory.RepeatNormal(shape.table(), /*seed=*/20261125);
    std::vector<int32_t> pages(shape.pages()), starts;
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
    std::shuffle(pages.begin(), pages.end(), random);
    const std::vector<int32_t> lengths(shape.sequences, static_cast<int32_t>(shape.length));
    for (uint32_t i = 0; i <= shape.sequences; ++i) {
      starts.push_back(static_cast<int32_t>(i * shape.chunk));
    }
    std::memcpy(&memory.bytes()[shape.table()], pages.data(), 4 * pages.size());
    std::memcpy(&memory.bytes()[shape.lengths()], lengths.data(), 4 * lengths.size());
    std::memcpy(&memory.bytes()[shape.starts()], starts.data(), 4 * starts.size());
    memory.Upload();
  }

  static Op OpOf(const PrefillShape& shape, Address memory) {
    Op op;
    op.kind = CONCERT_OP_ATTENTION_PREFILL;
    op.attention_prefill = {
        .attention = {.rows = shape.sequences,
                      .length_max = shape.length,
                      .q_heads = static_cast<uint16_t>(shape.q_heads),
                      .kv_heads = static_cast<uint16_t>(shape.kv_heads),
                      .head_dim = static_cast<uint16_t>(shape.head_dim),
                      .q = memory,
                      .page_table = memory + shape.table(),
                      .lengths = memory + shape.lengths(),
                      .out = memory + shape.rows_bytes(),
                      .cache = {.k = memory + shape.k(),
                                .v = memory + shape.k() + shape.cache_bytes(),
                                .page_stride = shape.page_elements(),
                                .pages = shape.pages(),
                                .page_size = shape.page_size,
                                .token_stride = shape.kv_heads * shape.head_dim,
                                .head_stride = shape.head_dim,
                                .dtype = shape.cache,
                                .k_scale = 1,
                                .v_scale = 1},
                      .q_stride = shape.columns(),
                      .out_stride = shape.columns(),
                      .table_stride = shape.pages_of_sequence(),
                      .window = 0,
                      .scale = 0.1f,
                      .soft_cap = 0},
        .tokens = shape.tokens(),
        .query_starts = memory + shape.starts(),
    };
    return op;
  }
};

TEST_F(GpuPrefillTest, Flops) {
  for (const PrefillShape& shape : kShapes) {
    for (const int sm_budget : {0, 64}) {
      const double us = Measure(shape, sm_budget);
      ASSERT_FALSE(HasFailure()) << shape.name;
      std::printf(
          "[ MEASURED ] attention_prefill, %s, %u x %u of %u, budget %d: %.1f us, %.0f TFLOP/s\n",
          shape.name, shape.sequences, shape.chunk, shape.length, sm_budget, us,
          shape.flops() / us / 1e6);
    }
  }
}

}  // namespace
}  // namespace concert::test
