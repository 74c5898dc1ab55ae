// The kinds from embedding on, of every backend, against references in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/conformance/device_fixture.h"
#include "tests/conformance/indices.h"

namespace concert::daemon::conformance {
namespace {

using Values = std::vector<double>;
constexpr std::array kElementTypes = {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32};

class ModelOpsConformanceTest : public DeviceTest {
 protected:
  void RunKind(concert_descriptor& descriptor, uint16_t kind) {
    descriptor.kind = kind;
    Run(Admit(descriptor));
  }
  Values ReadValues(uint32_t buffer, Dtype dtype, uint64_t count) {
    return Decode(dtype, Read(buffer, count * DtypeBytes(dtype)));
  }
};

class EmbeddingConformanceTest : public ModelOpsConformanceTest {
 protected:
  // Ids of every sort: in range, padding, and out of range on both sides.
  void RunCase(uint32_t columns, uint32_t padding, Dtype dtype, uint8_t index_dtype) {
    SCOPED_TRACE(testing::Message() << columns << " columns, padding " << padding << ", dtype "
                                    << static_cast<int>(dtype) << ", ids " << int{index_dtype});
    constexpr uint32_t kVocabulary = 50;
    const Indices ids = {0, 49, 7, -1, 7, 50, kHighest, kLowest, 1 << 20};
    const uint64_t stride = columns + padding;
    const Values table = RandomNumbers(dtype, kVocabulary * stride, 1);
    concert_descriptor descriptor{};
    concert_embedding_body& body = descriptor.body.embedding;
    body.rows = static_cast<uint32_t>(ids.size());
    body.columns = columns, body.vocabulary = kVocabulary;
    body.table_stride = body.out_stride = stride;
    body.dtype = static_cast<uint8_t>(dtype), body.index_dtype = index_dtype;
    body.ids.buffer = NewBuffer(EncodeIndices(index_dtype, ids));
    body.table.buffer = NewBuffer(Encode(dtype, table));
    body.out.buffer = NewPoisoned(ids.size() * stride * DtypeBytes(dtype));
    RunKind(descriptor, CONCERT_OP_EMBEDDING);
    const Values out = ReadValues(body.out.buffer, dtype, ids.size() * stride);
    for (size_t row = 0; row < ids.size(); ++row) {
      const auto id = static_cast<uint64_t>(std::clamp<int64_t>(ids[row], 0, kVocabulary - 1));
      for (uint64_t i = 0; i < columns; ++i) {
        ASSERT_EQ(out[row * stride + i], ids[row] < 0 ? 0 : table[id * stride + i])
            << "row " << row << ", column " << i;
      }
      for (uint64_t i = columns; i < stride; ++i) ASSERT_TRUE(std::isnan(out[row * stride + i]));
    }
  }
};

TEST_P(EmbeddingConformanceTest, TakesRowsAndKeepsIdsInRange) {
  for (const Dtype dtype : kElementTypes) {
    for (const uint8_t index_dtype : kIndexDtypes) {
      RunCase(1, 0, dtype, index_dtype);
      RunCase(37, 3, dtype, index_dtype);
      RunCase(1024, 0, dtype, index_dtype);
      RunCase(4096, 8, dtype, index_dtype);
    }
  }
}

class ArgmaxConformanceTest : public ModelOpsConformanceTest {
 protected:
  // What it says of rows of x, of which each begins `columns` + `padding` behind the one before.
  Indices RunOn(uint32_t rows, uint32_t columns, uint32_t padding, Dtype dtype, uint8_t index_dtype,
                const Values& x) {
    concert_descriptor descriptor{};
    concert_argmax_body& body = descriptor.body.argmax;
    body.rows = rows, body.columns = columns, body.x_stride = columns + padding;
    body.dtype = static_cast<uint8_t>(dtype), body.index_dtype = index_dtype;
    body.x.buffer = NewBuffer(Encode(dtype, x));
    const uint64_t bytes = (rows + 1) * IndexBytes(index_dtype);
    body.indices.buffer = NewPoisoned(bytes);
    RunKind(descriptor, CONCERT_OP_ARGMAX);
    Indices indices = DecodeIndices(index_dtype, Read(body.indices.buffer, bytes));
    EXPECT_EQ(indices.back(), -1) << "what lies behind was written";
    indices.pop_back();
    return indices;
  }
};

TEST_P(ArgmaxConformanceTest, FindsTheFirstOfTheLargest) {
  constexpr uint32_t kRows = 5;
  for (const Dtype dtype : kElementTypes) {
    for (const uint8_t index_dtype : kIndexDtypes) {
      for (const uint32_t columns : {1u, 37u, 4096u, 32003u}) {
        for (const uint32_t padding : {0u, 5u}) {
          SCOPED_TRACE(testing::Message() << columns << " columns, padding " << padding);
          const uint64_t stride = columns + padding;
          // Far more elements than numbers, so that there are equals; larger ones lie between rows.
          Values x = RandomNumbers(dtype, kRows * stride, 1);
          Indices want;
          for (uint64_t row = 0; row < kRows; ++row) {
            const auto begin = x.begin() + static_cast<int64_t>(row * stride);
            for (auto i = begin; i != begin + columns; ++i) *i = std::round(*i * 8) / 8;
            std::fill(begin + columns, begin + static_cast<int64_t>(stride), 9.0);
            want.push_back(std::max_element(begin, begin + columns) - begin);
          }
          EXPECT_EQ(RunOn(kRows, columns, padding, dtype, index_dtype, x), want);
        }
      }
    }
  }
}

TEST_P(ArgmaxConformanceTest, NanIsTheLargestAndZerosAreEqual) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const Dtype dtype : kElementTypes) {
    const Values x = {
        kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone,  //
        1,     kInf,  kNan,  2,     kInf,  -kNan, 3,     4,      //
        -1,    -2,    -0.0,  0.0,   -0.0,  -3,    -4,    -5,     //
        -5,    -4,    -3,    -2,    -1,    -2,    -3,    -1,
    };
    EXPECT_EQ(RunOn(4, 8, 0, dtype, CONCERT_ABI_INT32, x), (Indices{0, 2, 2, 4}));
  }
}

class RopeAppendConformanceTest : public ModelOpsConformanceTest {
 protected:
  struct Case {
    uint32_t head_dim, rotary_dim;
    bool interleaved, heads_first;
    Dtype dtype;
    uint8_t index_dtype;
    uint32_t padding;  // of rows of q, k and v; 0: they are columns of one matrix
    bool fp8 = false;  // the cache, with scales
  };
  // So that some numbers are beyond what fp8 holds.
  static constexpr float kKeyScale = 0.0021f, kValueScale = 0.0015f;

  static constexpr uint32_t kQHeads = 3, kKvHeads = 2, kPositions = 20, kPages = 4, kPageSize = 5;

  // In range, at both ends, beyond them, and padding.
  static inline const Indices kPositionsOf = {0, 19, 7, 3, 20, kHighest, -1, kLowest, 5};
  static inline const Indices kSlots = {0, 18, 7, -1, 8, kHighest, 6, kLowest, 5};
  static inline const uint64_t kRows = kSlots.size();

  static concert_kv_cache_abi CacheOf(const Case& test) {
    concert_kv_cache_abi cache{};
    cache.pages = kPages, cache.page_size = kPageSize;
    cache.page_stride = uint64_t{kPageSize} * kKvHeads * test.head_dim + test.padding;
    cache.token_stride = test.heads_first ? test.head_dim : kKvHeads * test.head_dim;
    cache.head_stride = test.heads_first ? kPageSize * test.head_dim : test.head_dim;
    return cache;
  }

  // In double precision, of the numbers as they are stored.
  static Values Rotated(const Case& test, const Values& heads, uint64_t position,
                        const Values& cos_sin) {
    Values out = heads;
    const uint64_t half = test.rotary_dim / 2;
    for (uint64_t head = 0; head < heads.size(); head += test.head_dim) {
      for (uint64_t i = 0; i < half; ++i) {
        const uint64_t first = head + (test.interleaved ? 2 * i : i);
        const uint64_t second = test.interleaved ? first + 1 : first + half;
        const double c = cos_sin[position * test.rotary_dim + i];
        const double s = cos_sin[position * test.rotary_dim + half + i];
        out[first] = heads[first] * c - heads[second] * s;
        out[second] = heads[second] * c + heads[first] * s;
      }
    }
    return out;
  }
  static Values Slice(const Values& values, uint64_t from, uint64_t count) {
    return {values.begin() + static_cast<int64_t>(from),
            values.begin() + static_cast<int64_t>(from + count)};
  }
  // Elements that nobody may touch are poison: NaN stands for them in `want`.
  static void ExpectNear(const Case& test, const Values& got, const Values& want) {
    const double tolerance = test.dtype == Dtype::kBf16   ? 8e-3
                             : test.dtype == Dtype::kFp16 ? 1e-3
                                                          : 1e-6;
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i])) {
        ASSERT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_NEAR(got[i], want[i], tolerance) << i;
      }
    }
  }

  // That each is the nearest there is in fp8 to what it stands for, but for what fp32 may add where
  // two are as near.
  static void ExpectQuantised(const Values& got, const Values& want, double scale) {
    ASSERT_EQ(got.size(), want.size());
    int largest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i])) {
        ASSERT_TRUE(std::isnan(got[i])) << i;
        continue;
      }
      const double exact = std::clamp(want[i] / scale, -448.0, 448.0);
      const double step = std::exp2(std::max(-6.0, std::floor(std::log2(std::abs(exact)))) - 3);
      ASSERT_NEAR(got[i], exact, step / 2 + 1e-4 * std::abs(exact) + 2e-7 / scale) << i;
      largest += std::abs(got[i]) == 448 ? 1 : 0;
    }
    EXPECT_GT(largest, 0);
  }

  void RunCase(const Case& test) {
    SCOPED_TRACE(testing::Message() << "head_dim " << test.head_dim << ", rotary_dim "
                                    << test.rotary_dim << (test.interleaved ? ", interleaved" : "")
                                    << (test.heads_first ? ", heads first" : "") << ", dtype "
                                    << static_cast<int>(test.dtype) << ", padding " << test.padding
                                    << (test.fp8 ? ", fp8" : ""));
    const uint32_t q_columns = kQHeads * test.head_dim, kv_columns = kKvHeads * test.head_dim;
    const uint64_t stride = q_columns + 2 * kv_columns + test.padding,
                   element = DtypeBytes(test.dtype);
    const Values x = RandomNumbers(test.dtype, kRows * stride, 1);
    const Values cos_sin = RandomNumbers(Dtype::kFp32, kPositions * test.rotary_dim, 2);
    concert_descriptor descriptor{};
    concert_rope_append_body& body = descriptor.body.rope_append;
    body.rows = static_cast<uint32_t>(kRows), body.positions_max = kPositions;
    body.q_heads = kQHeads, body.kv_heads = kKvHeads;
    body.head_dim = static_cast<uint16_t>(test.head_dim);
    body.rotary_dim = static_cast<uint16_t>(test.rotary_dim);
    body.q.buffer = body.k.buffer = body.v.buffer = NewBuffer(Encode(test.dtype, x));
    body.k.offset = q_columns * element, body.v.offset = (q_columns + kv_columns) * element;
    body.q_stride = body.k_stride = body.v_stride = static_cast<uint32_t>(stride);
    body.positions.buffer = NewBuffer(EncodeIndices(test.index_dtype, kPositionsOf));
    body.slots.buffer = NewBuffer(EncodeIndices(test.index_dtype, kSlots));
    body.cos_sin.buffer = NewBuffer(Encode(Dtype::kFp32, cos_sin));
    body.cache = CacheOf(test);
    const uint64_t cache_elements = kPages * body.cache.page_stride;
    const Dtype cache_dtype = test.fp8 ? Dtype::kFp8E4m3 : test.dtype;
    body.cache.k.buffer = NewPoisoned(cache_elements * DtypeBytes(cache_dtype));
    body.cache.v.buffer = NewPoisoned(cache_elements * DtypeBytes(cache_dtype));
    if (test.fp8) {
      body.cache_dtype = CONCERT_ABI_FP8_E4M3;
      body.cache.k.scales = std::bit_cast<uint32_t>(kKeyScale);
      body.cache.v.scales = std::bit_cast<uint32_t>(kValueScale);
    }
    body.dtype = static_cast<uint8_t>(test.dtype);
    body.position_dtype = body.slot_dtype = test.index_dtype;
    body.flags = test.interleaved ? CONCERT_ROPE_INTERLEAVED : 0;
    RunKind(descriptor, CONCERT_OP_ROPE_APPEND);

    Values want_x = x, want_k(cache_elements, std::nan("")), want_v = want_k;
    for (uint64_t row = 0; row < kRows; ++row) {
      const auto position =
          static_cast<uint64_t>(std::clamp<int64_t>(kPositionsOf[row], 0, kPositions - 1));
      const uint64_t begin = row * stride;
      const Values q = Rotated(test, Slice(x, begin, q_columns), position, cos_sin);
      std::copy(q.begin(), q.end(), want_x.begin() + static_cast<int64_t>(begin));
      if (kSlots[row] < 0) continue;
      const Values k = Rotated(test, Slice(x, begin + q_columns, kv_columns), position, cos_sin);
      const auto slot =
          static_cast<uint64_t>(std::min<int64_t>(kSlots[row], kPages * kPageSize - 1));
      for (uint64_t i = 0; i < kv_columns; ++i) {
        const uint64_t to = slot / kPageSize * body.cache.page_stride +
                            slot % kPageSize * body.cache.token_stride +
                            i / test.head_dim * body.cache.head_stride + i % test.head_dim;
        want_k[to] = k[i];
        want_v[to] = x[begin + q_columns + kv_columns + i];
      }
    }
    ExpectNear(test, ReadValues(body.q.buffer, test.dtype, x.size()), want_x);
    const Values k = ReadValues(body.cache.k.buffer, cache_dtype, cache_elements);
    const Values v = ReadValues(body.cache.v.buffer, cache_dtype, cache_elements);
    if (test.fp8) {
      ExpectQuantised(k, want_k, kKeyScale);
      ExpectQuantised(v, want_v, kValueScale);
    } else {
      ExpectNear(test, k, want_k);
      ExpectNear(test, v, want_v);
    }
  }
};

TEST_P(RopeAppendConformanceTest, RotatesAndAppends) {
  struct Dims {
    uint32_t head, rotary;
  };
  for (const Dtype dtype : kElementTypes) {
    for (const auto [head, rotary] : {Dims{64, 64}, {128, 128}, {64, 32}, {48, 18}, {6, 2}}) {
      for (const bool interleaved : {false, true}) {
        for (const uint32_t padding : {0u, 3u}) {
          RunCase({head, rotary, interleaved, /*heads_first=*/padding != 0, dtype,
                   kIndexDtypes[padding != 0 ? 1 : 0], padding});
        }
      }
    }
  }
}

TEST_P(RopeAppendConformanceTest, QuantisesToFp8Caches) {
  struct Dims {
    uint32_t head, rotary;
  };
  for (const Dtype dtype : kElementTypes) {
    for (const auto [head, rotary] : {Dims{64, 64}, {128, 64}, {256, 256}, {48, 18}}) {
      for (const bool interleaved : {false, true}) {
        for (const uint32_t padding : {0u, 3u, 8u}) {
          RunCase({head, rotary, interleaved, /*heads_first=*/padding != 0, dtype, kIndexDtypes[0],
                   padding, /*fp8=*/true});
        }
      }
    }
  }
}

// Indices that a client writes while ops that read them run, whatever it writes: nothing outside of
// what they may write changes, and what comes after them finds the device whole.
class HostileIndicesTest : public ModelOpsConformanceTest {
 protected:
  static constexpr uint64_t kGuard = 4096;  // bytes before and behind what may be written
  static constexpr uint32_t kRows = 16, kPages = 5, kPageSize = 3, kHeads = 2, kDim = 64;
  static constexpr uint32_t kColumns = kHeads * kDim, kTablePages = 4, kVocabulary = 9;
  static constexpr uint64_t kRowsBytes = uint64_t{2} * kRows * kColumns;
  static constexpr uint64_t kCacheBytes = uint64_t{2} * kPages * kPageSize * kColumns;

  // Ids, positions, slots, pages and lengths: all of them.
  Bytes RandomIndices() {
    Bytes bytes(8 * kRows * kTablePages);
    for (size_t at = 0; at < bytes.size(); at += 4) {
      const uint32_t anything = random_();
      const uint32_t index = anything % 4 == 0 ? anything : anything % 32 - 4;
      std::memcpy(&bytes[at], &index, 4);
    }
    return bytes;
  }

  Op MakeEmbedding(uint32_t indices, uint8_t index_dtype) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_EMBEDDING;
    concert_embedding_body& body = descriptor.body.embedding;
    body.rows = kRows, body.columns = kColumns, body.vocabulary = kVocabulary;
    body.ids.buffer = indices;
    body.table.buffer = input_;
    body.out = {written_, 0, kGuard};
    body.table_stride = body.out_stride = kColumns;
    body.dtype = CONCERT_ABI_BF16, body.index_dtype = index_dtype;
    return Admit(descriptor);
  }
  concert_kv_cache_abi Cache() const {
    concert_kv_cache_abi cache{};
    cache.k = {written_, 0, kGuard + kRowsBytes};
    cache.v = {written_, 0, kGuard + kRowsBytes + kCacheBytes};
    cache.pages = kPages, cache.page_size = kPageSize;
    cache.page_stride = kPageSize * kColumns;
    cache.token_stride = kColumns, cache.head_stride = kDim;
    return cache;
  }
  Op MakeRopeAppend(uint32_t indices, uint8_t index_dtype) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ROPE_APPEND;
    concert_rope_append_body& body = descriptor.body.rope_append;
    body.rows = kRows, body.positions_max = 7;
    body.q_heads = body.kv_heads = kHeads, body.head_dim = body.rotary_dim = kDim;
    body.q = {written_, 0, kGuard};
    body.k.buffer = body.v.buffer = body.cos_sin.buffer = input_;
    body.positions.buffer = body.slots.buffer = indices;
    body.cache = Cache();
    body.q_stride = body.k_stride = body.v_stride = kColumns;
    body.dtype = CONCERT_ABI_BF16, body.position_dtype = body.slot_dtype = index_dtype;
    return Admit(descriptor);
  }
  Op MakeAttention(uint32_t indices) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ATTENTION_DECODE;
    concert_attention_decode_body& body = descriptor.body.attention_decode;
    body.rows = kRows, body.length_max = kTablePages * kPageSize;
    body.q_heads = body.kv_heads = kHeads, body.head_dim = kDim;
    body.q.buffer = input_;
    body.page_table.buffer = body.lengths.buffer = indices;
    body.out = {written_, 0, kGuard};
    body.cache = Cache();
    body.q_stride = body.out_stride = kColumns, body.table_stride = kTablePages;
    body.scale = 1, body.dtype = CONCERT_ABI_BF16;
    return Admit(descriptor);
  }

  Op MakePrefill(uint32_t indices) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ATTENTION_PREFILL;
    concert_attention_prefill_body& body = descriptor.body.attention_prefill;
    body.tokens = kRows, body.sequences = kRows, body.length_max = kTablePages * kPageSize;
    body.q_heads = body.kv_heads = kHeads, body.head_dim = kDim;
    body.q.buffer = input_;
    body.query_starts.buffer = body.page_table.buffer = body.lengths.buffer = indices;
    body.out = {written_, 0, kGuard};
    body.cache = Cache();
    body.q_stride = body.out_stride = kColumns, body.table_stride = kTablePages;
    body.scale = 1, body.dtype = CONCERT_ABI_BF16;
    return Admit(descriptor);
  }

  // Of numbers that the client writes, too.
  Op MakeAdvance(uint32_t indices, uint8_t index_dtype) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ADVANCE;
    concert_advance_body& body = descriptor.body.advance;
    body.rows = kRows, body.counter_max = 7;
    body.counters.buffer = indices;
    body.slots = {indices, 0, 8 * kRows};
    body.counter_dtype = body.slot_dtype = index_dtype;
    return Admit(descriptor);
  }

  // Logits and all that rows have of their own change while a row is drawn.
  Op MakeSample(uint32_t indices, uint8_t index_dtype) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_SAMPLE;
    concert_sample_body& body = descriptor.body.sample;
    body.rows = kRows, body.columns = body.x_stride = 8;
    body.x.buffer = indices;
    body.indices = {written_, 0, kGuard};
    body.temperatures.buffer = body.top_ks.buffer = body.top_ps.buffer = indices;
    body.seeds.buffer = body.steps.buffer = indices;
    body.dtype = CONCERT_ABI_BF16, body.index_dtype = body.step_dtype = index_dtype;
    return Admit(descriptor);
  }

  std::mt19937 random_{static_cast<uint32_t>(tests::Seed())};
  uint32_t input_ = 0, written_ = 0;
};

TEST_P(HostileIndicesTest, ReachNothingElse) {
  SCOPED_TRACE(testing::Message() << "seed " << tests::Seed());
  constexpr uint64_t kMayBeWritten = kRowsBytes + 2 * kCacheBytes;
  input_ = NewBuffer(Encode(Dtype::kBf16, RandomNumbers(Dtype::kBf16, 16384, 1)));
  written_ = NewPoisoned(2 * kGuard + kMayBeWritten);
  const uint32_t indices = NewBuffer(RandomIndices());
  std::vector<Op> ops = {MakeAttention(indices), MakePrefill(indices)};
  for (const uint8_t index_dtype : kIndexDtypes) {
    ops.push_back(MakeEmbedding(indices, index_dtype));
    ops.push_back(MakeRopeAppend(indices, index_dtype));
    ops.push_back(MakeAdvance(indices, index_dtype));
    ops.push_back(MakeSample(indices, index_dtype));
  }
  uint64_t value = 0;
  for (int round = 0; round < 200; ++round) {
    for (const Op& op : ops) ASSERT_NO_FATAL_FAILURE(Launch(0, {&op}));
    ASSERT_NO_FATAL_FAILURE(Signal(0, 1, ++value));
    WriteAsClient(indices, RandomIndices());
    WaitFor(1, value);
  }
  const Bytes bytes = Read(written_, 2 * kGuard + kMayBeWritten);
  for (uint64_t i = 0; i < kGuard; ++i) {
    ASSERT_EQ(bytes[i], kPoison) << i << " bytes into what lies before";
    ASSERT_EQ(bytes[kGuard + kMayBeWritten + i], kPoison) << i << " bytes into what lies behind";
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(HostileIndicesTest);
CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(EmbeddingConformanceTest);
CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(ArgmaxConformanceTest);
CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(RopeAppendConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
