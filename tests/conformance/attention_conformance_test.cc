// Attention over a cache, of every backend, against a reference in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "tests/conformance/device_fixture.h"
#include "tests/conformance/indices.h"

namespace concert::daemon::conformance {
namespace {

class AttentionConformanceTest : public DeviceTest {
 protected:
  struct Case {
    uint32_t group, kv_heads, head_dim;
    uint32_t page_size, length_max;
    bool paged = true, heads_first = false;
    uint32_t window = 0;
    float soft_cap = 0;
    uint32_t padding = 0;  // of rows of q and out, and of pages; a multiple of 8, with fp8 of 16
    bool fp8 = false;      // the cache, with scales

    uint32_t q_heads() const { return group * kv_heads; }
    uint32_t columns() const { return q_heads() * head_dim; }
    uint64_t stride() const { return columns() + padding; }
    uint32_t pages_of_sequence() const { return (length_max - 1) / page_size + 1; }
    double scale() const { return 3 / std::sqrt(head_dim); }
  };

  static std::string Describe(const Case& test) {
    return (testing::Message() << test.group << " x " << test.kv_heads << " heads of "
                               << test.head_dim << ", pages of " << test.page_size << ", length "
                               << test.length_max << ", window " << test.window << ", cap "
                               << test.soft_cap << (test.fp8 ? ", fp8" : ""))
        .GetString();
  }

  // Places of tokens as a case has them, and the numbers there.
  struct Cache {
    concert_kv_cache_abi abi{};
    Values k, v;    // with their scales
    Indices table;  // of all sequences, also pages that there are not
  };
  Cache MakeCache(const Case& test, uint32_t sequences) {
    Cache cache;
    const uint32_t pages_of_sequence = test.pages_of_sequence();
    const uint32_t page_elements = test.page_size * test.kv_heads * test.head_dim;
    cache.abi.pages = test.paged ? 2 * pages_of_sequence + 3 : sequences;
    cache.abi.page_size = test.page_size;
    cache.abi.page_stride = page_elements + test.padding;
    cache.abi.token_stride = test.heads_first ? test.head_dim : test.kv_heads * test.head_dim;
    cache.abi.head_stride = test.heads_first ? test.page_size * test.head_dim : test.head_dim;
    const uint64_t elements = cache.abi.pages * cache.abi.page_stride;
    cache.k = MakeElements(test, elements, 2, 0.75f, cache.abi.k);
    cache.v = MakeElements(test, elements, 3, 12.5f, cache.abi.v);
    for (uint32_t i = 0; i < sequences * pages_of_sequence; ++i) {
      const bool wild = i % 11 == 10;
      cache.table.push_back(wild ? (i % 2 == 0 ? kLowest : kHighest) : i * 7 % cache.abi.pages);
    }
    return cache;
  }

  // Of k or v, as numbers; with fp8 times the scale.
  Values MakeElements(const Case& test, uint64_t count, uint64_t seed, float scale,
                      concert_operand& operand) {
    const Dtype dtype = test.fp8 ? Dtype::kFp8E4m3 : Dtype::kBf16;
    Values values = RandomNumbers(dtype, count, seed);
    operand.buffer = NewBuffer(Encode(dtype, values));
    if (!test.fp8) return values;
    operand.scales = std::bit_cast<uint32_t>(scale);
    for (double& value : values) value *= scale;
    return values;
  }

  // What bodies of all kinds have; out is `rows` rows of poison.
  template <typename Body>
  void FillBody(const Case& test, const Cache& cache, const Values& q, const Indices& lengths,
                uint64_t rows, Body& body) {
    body.length_max = test.length_max;
    body.q_heads = static_cast<uint16_t>(test.q_heads());
    body.kv_heads = static_cast<uint16_t>(test.kv_heads);
    body.head_dim = static_cast<uint16_t>(test.head_dim);
    body.q.buffer = NewBuffer(Encode(Dtype::kBf16, q));
    if (test.paged) {
      body.page_table.buffer = NewBuffer(EncodeIndices(CONCERT_ABI_INT32, cache.table));
      body.table_stride = test.pages_of_sequence();
    }
    body.lengths.buffer = NewBuffer(EncodeIndices(CONCERT_ABI_INT32, lengths));
    body.out.buffer = NewPoisoned(rows * test.stride() * 2);
    body.cache = cache.abi;
    body.q_stride = body.out_stride = static_cast<uint32_t>(test.stride());
    body.window = test.window, body.soft_cap = test.soft_cap;
    body.scale = static_cast<float>(test.scale());
    body.dtype = CONCERT_ABI_BF16;
    body.cache_dtype = test.fp8 ? CONCERT_ABI_FP8_E4M3 : 0;
  }

  // Where in k and v the tokens begin that see the first `visible` of a sequence.
  static std::vector<uint64_t> TokensOf(const Case& test, const Cache& cache, uint64_t sequence,
                                        uint64_t kv_head, int64_t visible) {
    const int64_t first = test.window == 0 ? 0 : std::max<int64_t>(0, visible - test.window);
    std::vector<uint64_t> tokens;
    for (int64_t token = first; token < visible; ++token) {
      const auto t = static_cast<uint64_t>(token);
      const int64_t page =
          test.paged ? cache.table[sequence * test.pages_of_sequence() + t / test.page_size]
                     : static_cast<int64_t>(sequence);
      tokens.push_back(static_cast<uint64_t>(std::clamp<int64_t>(page, 0, cache.abi.pages - 1)) *
                           cache.abi.page_stride +
                       t % test.page_size * cache.abi.token_stride +
                       kv_head * cache.abi.head_stride);
    }
    return tokens;
  }

  // One head of a row over the tokens that begin at `tokens` in k and v.
  static Values Attend(const Case& test, const Values& q, uint64_t q_at, const Cache& cache,
                       const std::vector<uint64_t>& tokens) {
    Values scores, out(test.head_dim, 0);
    for (const uint64_t at : tokens) {
      double score = 0;
      for (uint32_t i = 0; i < test.head_dim; ++i) score += q[q_at + i] * cache.k[at + i];
      score *= test.scale();
      scores.push_back(test.soft_cap == 0 ? score
                                          : test.soft_cap * std::tanh(score / test.soft_cap));
    }
    const double largest = tokens.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (double& score : scores) total += score = std::exp(score - largest);
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (uint32_t i = 0; i < test.head_dim; ++i) {
        out[i] += scores[t] / total * cache.v[tokens[t] + i];
      }
    }
    return out;
  }

  // Compares rows of out one after the other; in the end as a whole.
  struct Comparison {
    Values got, want;
  };
  static void CompareRow(const Case& test, const Cache& cache, const Values& q, const Values& out,
                         uint64_t row, uint64_t sequence, int64_t visible, Comparison& all) {
    for (uint32_t head = 0; head < test.q_heads(); ++head) {
      const std::vector<uint64_t> tokens =
          TokensOf(test, cache, sequence, head / test.group, visible);
      const uint64_t at = row * test.stride() + head * test.head_dim;
      const Values values = Attend(test, q, at, cache, tokens);
      for (uint32_t i = 0; i < test.head_dim; ++i) {
        if (tokens.empty()) {
          ASSERT_EQ(out[at + i], 0) << "row " << row << ", which sees no token";
        }
        all.got.push_back(out[at + i]), all.want.push_back(values[i]);
      }
    }
    ExpectPoison(test, out, row, test.columns());
  }
  // That a row holds what it held before, from a column on.
  static void ExpectPoison(const Case& test, const Values& out, uint64_t row, uint64_t column) {
    for (; column < test.stride(); ++column) {
      ASSERT_TRUE(std::isnan(out[row * test.stride() + column])) << "row " << row;
    }
  }
  static void Expect(const Comparison& all) { EXPECT_LE(RelativeError(all.got, all.want), 8e-3); }
  Values ReadOut(const Case& test, uint32_t buffer, uint64_t rows) {
    return Decode(Dtype::kBf16, Read(buffer, rows * test.stride() * 2));
  }
};

class AttentionDecodeConformanceTest : public AttentionConformanceTest {
 protected:
  void RunCase(const Case& test) {
    SCOPED_TRACE(Describe(test));
    // The longest, beyond it, none, below none, one, and some.
    const Indices lengths = {test.length_max, kHighest, 0, -5, 1, (test.length_max + 1) / 2};
    const auto rows = static_cast<uint32_t>(lengths.size());
    const Values q = RandomNumbers(Dtype::kBf16, rows * test.stride(), 1);
    const Cache cache = MakeCache(test, rows);
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ATTENTION_DECODE;
    concert_attention_decode_body& body = descriptor.body.attention_decode;
    body.rows = rows;
    FillBody(test, cache, q, lengths, rows, body);
    Run(Admit(descriptor));
    const Values out = ReadOut(test, body.out.buffer, rows);
    Comparison all;
    for (uint32_t row = 0; row < rows; ++row) {
      const int64_t length = std::clamp<int64_t>(lengths[row], 0, test.length_max);
      ASSERT_NO_FATAL_FAILURE(CompareRow(test, cache, q, out, row, row, length, all));
    }
    Expect(all);
  }
};

TEST_P(AttentionDecodeConformanceTest, EveryGroupOfHeads) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    for (uint32_t group = 1; group <= 8; ++group) RunCase({group, 2, head_dim, 16, 100});
  }
}

TEST_P(AttentionDecodeConformanceTest, EveryLayout) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    for (const bool heads_first : {false, true}) {
      RunCase({4, 2, head_dim, 16, 333, true, heads_first});
      RunCase({4, 2, head_dim, 1, 50, true, heads_first});
      RunCase({2, 3, head_dim, 7, 200, true, heads_first, 0, 0, 8});
      RunCase({1, 2, head_dim, 300, 300, false, heads_first, 0, 0, 16});
    }
  }
}

TEST_P(AttentionDecodeConformanceTest, WindowsAndCaps) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    RunCase({4, 2, head_dim, 16, 200, true, false, 33});
    RunCase({4, 2, head_dim, 16, 200, true, false, 1});
    RunCase({4, 2, head_dim, 16, 200, true, false, UINT32_MAX});
    RunCase({4, 2, head_dim, 16, 200, true, false, 0, 1.5f});
    RunCase({4, 2, head_dim, 16, 200, true, false, 50, 2});
  }
}

// So long that rows are cut into chunks, of which some rows have none.
TEST_P(AttentionDecodeConformanceTest, LongContexts) {
  RunCase({8, 1, 128, 16, 5000});
  RunCase({1, 1, 64, 64, 9001});
  RunCase({3, 2, 128, 16, 4097, true, true, 1500});
  RunCase({2, 2, 256, 32, 4500});
}

TEST_P(AttentionDecodeConformanceTest, Fp8Caches) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    for (const bool heads_first : {false, true}) {
      for (Case test : {Case{4, 2, head_dim, 16, 333, true, heads_first},
                        Case{8, 1, head_dim, 1, 50, true, heads_first},
                        Case{2, 3, head_dim, 7, 200, true, heads_first, 33, 0, 16},
                        Case{1, 2, head_dim, 300, 300, false, heads_first, 0, 1.5f, 32},
                        Case{3, 1, head_dim, 16, 4500, true, heads_first}}) {
        test.fp8 = true;
        RunCase(test);
      }
    }
  }
}

class AttentionPrefillConformanceTest : public AttentionConformanceTest {
 protected:
  // As a client writes them: one start more than there are lengths.
  struct Chunks {
    Indices starts, lengths;
    uint32_t tokens;
  };
  // From nothing, behind a context, nothing new, one token, longer than its sequence, and beyond
  // what there may be; with rows before the first and, but for the last, behind it.
  static Chunks EverySort(const Case& test) {
    const int64_t length = test.length_max;
    return {.starts = {3, 3 + length / 2, 3 + length, 3 + length, 4 + length, 24 + length,
                       24 + length, kHighest},
            .lengths = {length / 2, length, 7, length - 1, 13, -1, kHighest},
            .tokens = static_cast<uint32_t>(64 + length)};
  }

  // `sm_budget` 0: of all SMs.
  void RunCase(const Case& test, const Chunks& chunks, int sm_budget = 0) {
    SCOPED_TRACE(Describe(test));
    SCOPED_TRACE(testing::Message() << chunks.tokens << " tokens on " << sm_budget << " SMs");
    const auto sequences = static_cast<uint32_t>(chunks.lengths.size());
    const Values q = RandomNumbers(Dtype::kBf16, chunks.tokens * test.stride(), 1);
    const Cache cache = MakeCache(test, sequences);
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ATTENTION_PREFILL;
    concert_attention_prefill_body& body = descriptor.body.attention_prefill;
    body.tokens = chunks.tokens, body.sequences = sequences;
    body.query_starts.buffer = NewBuffer(EncodeIndices(CONCERT_ABI_INT32, chunks.starts));
    FillBody(test, cache, q, chunks.lengths, chunks.tokens, body);
    const Op op = Admit(descriptor);
    const Op* const ops[] = {&op};
    const absl::Status status =
        gpu().Launch({.planned = {.count = 1, .lane = 0, .sm_budget = sm_budget}, .ops = ops});
    ASSERT_TRUE(status.ok()) << status;
    Signal(0, 1, ++launches_);
    WaitFor(1, launches_);
    Compare(test, chunks, cache, q, ReadOut(test, body.out.buffer, chunks.tokens));
  }

 private:
  static void Compare(const Case& test, const Chunks& chunks, const Cache& cache, const Values& q,
                      const Values& out) {
    Comparison all;
    int64_t row = 0;
    const auto clamped = [&](int64_t start) {
      return std::clamp<int64_t>(start, 0, chunks.tokens);
    };
    const auto expect_untouched = [&](int64_t end) {
      for (; row < end; ++row) ExpectPoison(test, out, static_cast<uint64_t>(row), 0);
    };
    for (size_t s = 0; s < chunks.lengths.size(); ++s) {
      const int64_t end = clamped(chunks.starts[s + 1]);
      const int64_t length = std::clamp<int64_t>(chunks.lengths[s], 0, test.length_max);
      for (expect_untouched(clamped(chunks.starts[s])); row < end; ++row) {
        ASSERT_NO_FATAL_FAILURE(CompareRow(test, cache, q, out, static_cast<uint64_t>(row), s,
                                           std::max<int64_t>(0, length - (end - row) + 1), all));
      }
    }
    expect_untouched(chunks.tokens);
    Expect(all);
  }

  uint64_t launches_ = 0;
};

TEST_P(AttentionPrefillConformanceTest, EveryGroupOfHeads) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    for (uint32_t group = 1; group <= 8; ++group) {
      const Case test = {group, 2, head_dim, 16, 100};
      RunCase(test, EverySort(test));
    }
  }
}

TEST_P(AttentionPrefillConformanceTest, EveryLayout) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    for (const bool heads_first : {false, true}) {
      for (const Case& test : {Case{4, 2, head_dim, 16, 200, true, heads_first},
                               Case{4, 2, head_dim, 1, 50, true, heads_first},
                               Case{2, 3, head_dim, 7, 130, true, heads_first, 0, 0, 8},
                               Case{1, 2, head_dim, 200, 200, false, heads_first, 0, 0, 16}}) {
        RunCase(test, EverySort(test));
      }
    }
  }
}

TEST_P(AttentionPrefillConformanceTest, WindowsAndCaps) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    for (const Case& test : {Case{4, 2, head_dim, 16, 150, true, false, 33},
                             Case{1, 1, head_dim, 16, 300, true, false, 70},
                             Case{4, 2, head_dim, 16, 150, true, false, 1},
                             Case{4, 2, head_dim, 16, 150, true, false, UINT32_MAX},
                             Case{4, 2, head_dim, 16, 150, true, false, 0, 1.5f},
                             Case{4, 2, head_dim, 16, 150, true, false, 50, 2}}) {
      RunCase(test, EverySort(test));
    }
  }
}

// Several tiles of a chunk, many steps of each; fewer blocks than tiles.
TEST_P(AttentionPrefillConformanceTest, LongContexts) {
  for (const int sm_budget : {0, 1}) {
    RunCase({1, 1, 128, 16, 1100}, {.starts = {0, 300}, .lengths = {1100}, .tokens = 300},
            sm_budget);
    RunCase({8, 1, 64, 64, 700}, {.starts = {0, 40, 73}, .lengths = {700, 33}, .tokens = 73},
            sm_budget);
    RunCase({3, 2, 128, 16, 900, true, true, 250},
            {.starts = {0, 100, 101, 130}, .lengths = {100, 900, 500}, .tokens = 130}, sm_budget);
    RunCase({2, 1, 256, 16, 500}, {.starts = {0, 200, 210}, .lengths = {500, 77}, .tokens = 210},
            sm_budget);
  }
}

TEST_P(AttentionPrefillConformanceTest, Fp8Caches) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    for (const bool heads_first : {false, true}) {
      for (Case test : {Case{4, 2, head_dim, 16, 200, true, heads_first},
                        Case{8, 1, head_dim, 1, 50, true, heads_first},
                        Case{2, 3, head_dim, 7, 130, true, heads_first, 33, 0, 16},
                        Case{1, 2, head_dim, 200, 200, false, heads_first, 0, 1.5f, 32}}) {
        test.fp8 = true;
        RunCase(test, EverySort(test));
      }
    }
    Case test = {2, 1, head_dim, 16, 500};
    test.fp8 = true;
    RunCase(test, {.starts = {0, 200, 210}, .lengths = {500, 77}, .tokens = 210}, /*sm_budget=*/1);
  }
}

// A chunk of one token is what a decode step is.
TEST_P(AttentionPrefillConformanceTest, ChunksOfOneTokenOfManySequences) {
  const Case test = {4, 2, 128, 16, 90};
  Chunks chunks{.starts = {0}, .lengths = {}, .tokens = 50};
  for (int64_t i = 1; i <= chunks.tokens; ++i) {
    chunks.starts.push_back(i), chunks.lengths.push_back(i * 37 % 91);
  }
  RunCase(test, chunks);
}

CONCERT_INSTANTIATE_FOR_EACH_DEVICE(AttentionDecodeConformanceTest);
CONCERT_INSTANTIATE_FOR_EACH_DEVICE(AttentionPrefillConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
