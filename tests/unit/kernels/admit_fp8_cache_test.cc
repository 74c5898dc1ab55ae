// Caches in fp8 of the kinds that have one: what is refused, and what the good is worth and
// touches.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "tests/unit/kernels/admit_fixture.h"
#include "tests/unit/kernels/refusals.h"

namespace concert::kernels {
namespace {

using D = concert_descriptor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

concert_kv_cache_abi& CacheOf(D& d) {
  if (d.kind == CONCERT_OP_ROPE_APPEND) return d.body.rope_append.cache;
  return d.kind == CONCERT_OP_ATTENTION_DECODE ? d.body.attention_decode.cache
                                               : d.body.attention_prefill.cache;
}
uint8_t& CacheDtypeOf(D& d) {
  if (d.kind == CONCERT_OP_ROPE_APPEND) return d.body.rope_append.cache_dtype;
  return d.kind == CONCERT_OP_ATTENTION_DECODE ? d.body.attention_decode.cache_dtype
                                               : d.body.attention_prefill.cache_dtype;
}
void SetScales(D& d, float k, float v) {
  CacheOf(d).k.scales = std::bit_cast<uint32_t>(k);
  CacheOf(d).v.scales = std::bit_cast<uint32_t>(v);
}

class AdmitFp8CacheTest : public testing::Test {
 protected:
  const std::vector<D> bf16_ = {GoodRopeAppend(), GoodAttentionDecode(), GoodAttentionPrefill()};
};

TEST_F(AdmitFp8CacheTest, EveryBadDtypeAndScaleHasItsSentence) {
  for (const D& good : bf16_) {
    SCOPED_TRACE(concert_op_kind_name(good.kind));
    ExpectRefusals(
        WithFp8Cache(good),
        {
            {[](D& d) { CacheDtypeOf(d) = CONCERT_ABI_FP16; },
             "cache_dtype is 2; a cache has the dtype of its op, here bf16, or fp8_e4m3, so it "
             "must be 0, 1 or 4"},
            {[](D& d) { CacheDtypeOf(d) = CONCERT_ABI_INT32; }, "cache_dtype is 5"},
            {[](D& d) { CacheDtypeOf(d) = 255; }, "cache_dtype is 255"},
            {[](D& d) { SetScales(d, -0.5f, 1); },
             "k_scale is -0.5; it must be a finite number of at least 2^-126, or 0 for 1"},
            {[](D& d) { SetScales(d, -0.0f, 1); }, "k_scale is -0;"},
            {[](D& d) { SetScales(d, kNan, 1); }, "k_scale is nan"},
            {[](D& d) { SetScales(d, 1, kInfinity); }, "v_scale is inf"},
            {[](D& d) { SetScales(d, 1, -kInfinity); }, "v_scale is -inf"},
            {[](D& d) { SetScales(d, 1, 0x1p-127f); }, "v_scale is 5.87747e-39"},
            {[](D& d) { CacheDtypeOf(d) = 0; },
             "k_scale is 0.25, but the cache is in bf16; only one in fp8_e4m3 has scales, so it "
             "must be 0"},
            {[](D& d) {
               CacheDtypeOf(d) = CONCERT_ABI_BF16;
               SetScales(d, 0, 1);
             },
             "v_scale is 1, but the cache is in bf16"},
        });
  }
}

// Of attention, which reads 16 bytes at a time.
TEST_F(AdmitFp8CacheTest, StridesAreMultiplesOf16Bytes) {
  for (const D& good : {GoodAttentionDecode(), GoodAttentionPrefill()}) {
    SCOPED_TRACE(concert_op_kind_name(good.kind));
    ExpectRefusals(WithFp8Cache(good), {
                                           {[](D& d) { CacheOf(d).page_stride += 8; },
                                            "page_stride is 2056, which is not a multiple of 16"},
                                           {[](D& d) { CacheOf(d).token_stride = 136; },
                                            "token_stride is 136, which is not a multiple of 16"},
                                           {[](D& d) { CacheOf(d).head_stride = 72; },
                                            "head_stride is 72, which is not a multiple of 16"},
                                           {[](D& d) { CacheOf(d).k.offset = 8; },
                                            "k_cache.offset 8 is not a multiple of 16 bytes"},
                                       });
  }
}

// An element is a byte, to the last that fits and to the bytes that others may use.
TEST_F(AdmitFp8CacheTest, HasHalfTheBytes) {
  constexpr uint64_t kCacheBytes = 10 * 16 * 2 * 64;
  for (const D& good : bf16_) {
    SCOPED_TRACE(concert_op_kind_name(good.kind));
    D d = WithFp8Cache(good);
    CacheOf(d).v.offset = kMiB - kCacheBytes;
    Op op;
    ASSERT_TRUE(Admit(d, op).ok()) << Admit(d, op).ToString();
    int caches = 0;
    const Accesses accesses = AccessesOf(op);
    for (const Access& access : accesses.list()) {
      if (access.field != CONCERT_FIELD_K_CACHE && access.field != CONCERT_FIELD_V_CACHE) continue;
      const ByteRange bounds = access.memory.Bounds();
      EXPECT_EQ(bounds.end - bounds.begin, kCacheBytes);
      ++caches;
    }
    EXPECT_EQ(caches, 2);
    CacheOf(d).v.offset += 16;
    EXPECT_EQ(Admit(d, op).message, CONCERT_MESSAGE_OUT_OF_BOUNDS);
  }
}

TEST_F(AdmitFp8CacheTest, CostsHalfTheCachesBytes) {
  Op bf16, fp8;
  ASSERT_TRUE(Admit(GoodAttentionDecode(), bf16).ok());
  ASSERT_TRUE(Admit(WithFp8Cache(GoodAttentionDecode()), fp8).ok());
  EXPECT_EQ(bf16.work.hbm_bytes - fp8.work.hbm_bytes, 8 * 60 * 2 * 64 * 2u);
  ASSERT_TRUE(Admit(GoodAttentionPrefill(), bf16).ok());
  ASSERT_TRUE(Admit(WithFp8Cache(GoodAttentionPrefill()), fp8).ok());
  EXPECT_EQ(bf16.work.hbm_bytes - fp8.work.hbm_bytes, 3 * 60 * 2 * 64 * 2u);
  // What is written.
  ASSERT_TRUE(Admit(GoodRopeAppend(), bf16).ok());
  ASSERT_TRUE(Admit(WithFp8Cache(GoodRopeAppend()), fp8).ok());
  EXPECT_EQ(bf16.work.hbm_bytes - fp8.work.hbm_bytes, 8 * 2 * 2 * 64u);
}

TEST_F(AdmitFp8CacheTest, ScalesAreOneUnlessGiven) {
  D d = WithFp8Cache(GoodAttentionDecode());
  Op op;
  ASSERT_TRUE(Admit(d, op).ok());
  EXPECT_EQ(op.attention_decode.cache.dtype, Dtype::kFp8E4m3);
  EXPECT_EQ(op.attention_decode.scale, 0.125f * 0.25f);  // of the keys, too
  EXPECT_EQ(op.attention_decode.cache.v_scale, 3);
  SetScales(d, 0, 0);
  ASSERT_TRUE(Admit(d, op).ok());
  EXPECT_EQ(op.attention_decode.scale, 0.125f);
  EXPECT_EQ(op.attention_decode.cache.v_scale, 1);
}

// A client may say what is so by default.
TEST_F(AdmitFp8CacheTest, ACacheMayHaveTheOpsDtypeByName) {
  for (D d : bf16_) {
    CacheDtypeOf(d) = CONCERT_ABI_BF16;
    Op op;
    EXPECT_TRUE(Admit(d, op).ok()) << Admit(d, op).ToString();
  }
  D d = GoodRopeAppend();
  d.body.rope_append.dtype = CONCERT_ABI_FP32;
  d.body.rope_append.cache_dtype = CONCERT_ABI_BF16;
  Op op;
  EXPECT_EQ(Admit(d, op).message, CONCERT_MESSAGE_CACHE_DTYPE);
}

}  // namespace
}  // namespace concert::kernels
