// rope_append of every backend against a reference in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "tests/conformance/model_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

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

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(RopeAppendConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
