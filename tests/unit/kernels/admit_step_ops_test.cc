// Bad input of the kinds from advance on, and what the good is worth and touches.
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/kernels/admit_fixture.h"
#include "tests/unit/kernels/refusals.h"

namespace concert::kernels {
namespace {

using D = concert_descriptor;
using FieldModes = std::map<concert_field, AccessMode>;

TEST(AdmitStepOpsTest, EveryBadAdvanceHasItsSentence) {
  ExpectRefusals(
      GoodAdvance(),
      {
          {[](D& d) { d.body.advance.rows = 0; }, "rows is 0; it must be between 1 and 16777216"},
          {[](D& d) { d.body.advance.rows = UINT32_MAX; }, "rows is 4294967295"},
          {[](D& d) { d.body.advance.counter_max = 0; },
           "counter_max is 0; it must be between 1 and 2147483647"},
          {[](D& d) { d.body.advance.counter_max = 1u << 31; }, "counter_max is 2147483648"},
          {[](D& d) { d.body.advance.counter_dtype = CONCERT_ABI_FP32; },
           "counter_dtype is 3; it must be between 5 and 6"},
          {[](D& d) { d.body.advance.slot_dtype = 0; }, "slot_dtype is 0"},
          {[](D& d) { d.body.advance.reserved0 = 1; }, "of the advance descriptor is not zero"},
          {[](D& d) { d.body.advance.reserved1 = 1; }, "is not zero"},
          {[](D& d) { d.body.advance.reserved2[17] = 1; }, "is not zero"},
          {[](D& d) { d.body.advance.counters.scales = 1; }, "is not zero"},
          {[](D& d) { d.body.advance.slots.scales = 1; }, "is not zero"},
          {[](D& d) { d.flags = 2; }, "is not zero"},
          {[](D& d) { d.body.advance.counters = {}; }, "counters is required"},
          {[](D& d) { d.body.advance.counters.buffer = 4; }, "counters.buffer is 4"},
          {[](D& d) { d.body.advance.slots.buffer = 5; }, "slots lies on GPU 1"},
          {[](D& d) { d.body.advance.counters.offset = 2; },
           "counters.offset 2 is not a multiple of 4"},
          {[](D& d) { d.body.advance.counters.offset = kMiB - 28; }, "counters needs 32 bytes"},
          {[](D& d) { d.body.advance.counters.offset = kHuge - 3; }, "extent of counters"},
          {[](D& d) { d.body.advance.slots.offset = 4; }, "slots.offset 4 is not a multiple of 8"},
          {[](D& d) { d.body.advance.slots.offset = kMiB - 56; }, "slots needs 64 bytes"},
          {[](D& d) { d.body.advance.slots.offset = 24; }, "counters overlaps slots"},
      });
}

TEST(AdmitStepOpsTest, AnAdvanceReadsAndWritesItsCounters) {
  Op op;
  concert_descriptor descriptor = GoodAdvance();
  ASSERT_TRUE(Admit(descriptor, op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 8 * (2 * 4 + 8u));
  EXPECT_TRUE(op.work.chains());
  EXPECT_EQ(ModesOf(descriptor), (FieldModes{{CONCERT_FIELD_COUNTERS, AccessMode::kReadWrite},
                                             {CONCERT_FIELD_SLOTS, AccessMode::kRead}}));
  descriptor.body.advance.slots = {};
  descriptor.body.advance.slot_dtype = 0;
  ASSERT_TRUE(Admit(descriptor, op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 8 * 2 * 4u);
  EXPECT_EQ(ModesOf(descriptor), (FieldModes{{CONCERT_FIELD_COUNTERS, AccessMode::kReadWrite}}));
}

TEST(AdmitStepOpsTest, EveryBadQuantizeHasItsSentence) {
  ExpectRefusals(
      GoodQuantize(),
      {
          {[](D& d) { d.body.quantize.rows = 0; }, "rows is 0"},
          {[](D& d) { d.body.quantize.columns = (1 << 24) + 1; }, "columns is 16777217"},
          {[](D& d) { d.body.quantize.dtype = CONCERT_ABI_FP8_E4M3; }, "dtype is 4"},
          {[](D& d) { d.body.quantize.dtype = 0; }, "dtype is 0"},
          {[](D& d) { d.body.quantize.reserved0 = 1; }, "of the quantize descriptor is not zero"},
          {[](D& d) { d.body.quantize.reserved1 = 1; }, "is not zero"},
          {[](D& d) { d.body.quantize.reserved2 = 1; }, "is not zero"},
          {[](D& d) { d.body.quantize.reserved3[13] = 1; }, "is not zero"},
          {[](D& d) { d.body.quantize.out.scales = 1; }, "is not zero"},
          {[](D& d) { d.body.quantize.x = {}; }, "x is required"},
          {[](D& d) { d.body.quantize.out = {}; }, "out is required"},
          {[](D& d) { d.body.quantize.scales = {}; }, "scales is required"},
          {[](D& d) { d.body.quantize.scales.buffer = 5; }, "scales lies on GPU 1"},
          {[](D& d) { d.body.quantize.x_stride = 63; }, "x_stride is 63"},
          {[](D& d) { d.body.quantize.out_stride = 0; }, "out_stride is 0"},
          {[](D& d) { d.body.quantize.out_stride = kHuge / 2; }, "extent of out does not fit"},
          {[](D& d) { d.body.quantize.x.offset = kMiB - 1022; }, "x needs 1024 bytes"},
          {[](D& d) { d.body.quantize.out.offset = kMiB - 511; }, "out needs 512 bytes"},
          {[](D& d) { d.body.quantize.scales.offset = kMiB - 28; }, "scales needs 32 bytes"},
          {[](D& d) { d.body.quantize.scales.offset = 2; },
           "scales.offset 2 is not a multiple of 4"},
          {[](D& d) { d.body.quantize.out = d.body.quantize.x; }, "out overlaps x"},
          {[](D& d) { d.body.quantize.scales.offset = 508; }, "out overlaps scales"},
          {[](D& d) { d.body.quantize.scales = d.body.quantize.x; }, "scales overlaps x"},
      });
}

TEST(AdmitStepOpsTest, AQuantizeWritesRowsAndScales) {
  Op op;
  ASSERT_TRUE(Admit(GoodQuantize(), op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 8 * 64 * (2 + 1) + 8 * 4u);
  EXPECT_TRUE(op.work.chains());
  EXPECT_EQ(ModesOf(GoodQuantize()), (FieldModes{{CONCERT_FIELD_INPUT, AccessMode::kRead},
                                                 {CONCERT_FIELD_OUT, AccessMode::kWrite},
                                                 {CONCERT_FIELD_SCALES, AccessMode::kWrite}}));
}

TEST(AdmitStepOpsTest, EveryBadSampleHasItsSentence) {
  ExpectRefusals(
      GoodSample(),
      {
          {[](D& d) { d.body.sample.rows = 0; }, "rows is 0"},
          {[](D& d) { d.body.sample.columns = 0; }, "columns is 0"},
          {[](D& d) { d.body.sample.columns = (1 << 18) + 1; },
           "columns is 262145; it must be between 1 and 262144"},
          {[](D& d) { d.body.sample.dtype = CONCERT_ABI_FP8_E4M3; }, "dtype is 4"},
          {[](D& d) { d.body.sample.index_dtype = CONCERT_ABI_FP32; }, "index_dtype is 3"},
          {[](D& d) { d.body.sample.step_dtype = 7; }, "step_dtype is 7"},
          {[](D& d) { d.body.sample.reserved0 = 1; }, "of the sample descriptor is not zero"},
          {[](D& d) { d.body.sample.reserved1[4] = 1; }, "is not zero"},
          {[](D& d) { d.body.sample.x.scales = 1; }, "is not zero"},
          {[](D& d) { d.body.sample.seeds.scales = 1; }, "is not zero"},
          {[](D& d) { d.body.sample.x = {}; }, "x is required"},
          {[](D& d) { d.body.sample.indices = {}; }, "indices is required"},
          {[](D& d) { d.body.sample.temperatures.buffer = 4; }, "temperatures.buffer is 4"},
          {[](D& d) { d.body.sample.top_ks.buffer = 5; }, "top_ks lies on GPU 1"},
          {[](D& d) { d.body.sample.x_stride = 63; }, "x_stride is 63"},
          {[](D& d) { d.body.sample.x_stride = kHuge / 2; }, "extent of x does not fit"},
          {[](D& d) { d.body.sample.x.offset = kMiB - 1022; }, "x needs 1024 bytes"},
          {[](D& d) { d.body.sample.indices.offset = 2; }, "indices.offset 2 is not a multiple"},
          {[](D& d) { d.body.sample.temperatures.offset = 66; }, "is not a multiple of 4"},
          {[](D& d) { d.body.sample.top_ks.offset = kMiB - 28; }, "top_ks needs 32 bytes"},
          {[](D& d) { d.body.sample.top_ps.offset = kMiB - 28; }, "top_ps needs 32 bytes"},
          {[](D& d) { d.body.sample.seeds.offset = kMiB - 56; }, "seeds needs 64 bytes"},
          {[](D& d) { d.body.sample.seeds.offset = 252; }, "is not a multiple of 8"},
          {[](D& d) { d.body.sample.steps.offset = kMiB - 56; }, "steps needs 64 bytes"},
          {[](D& d) { d.body.sample.indices = d.body.sample.x; }, "indices overlaps x"},
          {[](D& d) { d.body.sample.steps.offset = 24; }, "indices overlaps steps"},
          {[](D& d) { d.body.sample.top_ks.offset = 0; }, "indices overlaps top_ks"},
      });
}

TEST(AdmitStepOpsTest, ASampleReadsWhatItsRowsHave) {
  Op op;
  concert_descriptor descriptor = GoodSample();
  ASSERT_TRUE(Admit(descriptor, op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 8 * 64 * 2 + 8 * (4 + 4 + 4 + 4 + 8 + 8u));
  EXPECT_TRUE(op.work.chains());
  const FieldModes least = {{CONCERT_FIELD_INPUT, AccessMode::kRead},
                            {CONCERT_FIELD_INDICES, AccessMode::kWrite}};
  FieldModes all = least;
  for (const concert_field field :
       {CONCERT_FIELD_TEMPERATURES, CONCERT_FIELD_TOP_KS, CONCERT_FIELD_TOP_PS, CONCERT_FIELD_SEEDS,
        CONCERT_FIELD_STEPS}) {
    all[field] = AccessMode::kRead;
  }
  EXPECT_EQ(ModesOf(descriptor), all);

  concert_sample_body& body = descriptor.body.sample;
  body.temperatures = body.top_ks = body.top_ps = body.seeds = body.steps = {};
  body.step_dtype = 0;
  ASSERT_TRUE(Admit(descriptor, op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 8 * 64 * 2 + 8 * 4u);
  EXPECT_EQ(ModesOf(descriptor), least);
}

TEST(AdmitStepOpsTest, EveryBadSizeOfAnAttentionPrefillHasItsSentence) {
  ExpectRefusals(
      GoodAttentionPrefill(),
      {
          {[](D& d) { d.body.attention_prefill.tokens = 0; },
           "tokens is 0; it must be between 1 and 1048576"},
          {[](D& d) { d.body.attention_prefill.tokens = (1 << 20) + 1; }, "tokens is 1048577"},
          {[](D& d) { d.body.attention_prefill.sequences = 0; },
           "sequences is 0; it must be between 1 and 65536"},
          {[](D& d) { d.body.attention_prefill.sequences = 65537; }, "sequences is 65537"},
          {[](D& d) { d.body.attention_prefill.kv_heads = 0; }, "kv_heads is 0"},
          {[](D& d) { d.body.attention_prefill.q_heads = 18; },
           "q_heads is 18; it must be between 2 and 16"},
          {[](D& d) { d.body.attention_prefill.q_heads = 3; },
           "q_heads is 3, which is not a multiple of 2"},
          {[](D& d) { d.body.attention_prefill.head_dim = 192; },
           "head_dim is 192, which is not one of its values"},
          {[](D& d) { d.body.attention_prefill.head_dim = 96; },
           "head_dim is 96, which is not a multiple of 64"},
          {[](D& d) { d.body.attention_prefill.length_max = 65; },
           "length_max is 65; it must be between 1 and 64"},
          {[](D& d) { d.body.attention_prefill.dtype = CONCERT_ABI_FP16; }, "dtype is 2"},
          {[](D& d) { d.body.attention_prefill.q_stride = 260; },
           "q_stride is 260, which is not a multiple of 8"},
          {[](D& d) { d.body.attention_prefill.q_stride = 248; }, "q_stride is 248"},
          {[](D& d) { d.body.attention_prefill.out_stride = 257; },
           "out_stride is 257, which is not a multiple of 8"},
          {[](D& d) { d.body.attention_prefill.out_stride = 248; }, "out_stride is 248"},
          {[](D& d) { d.body.attention_prefill.cache.token_stride = 4; }, "token_stride is 4"},
          {[](D& d) { d.body.attention_prefill.page_table = {}; },
           "length_max is 60; it must be between 1 and 16"},
          {[](D& d) {
             d.body.attention_prefill.page_table = {};
             d.body.attention_prefill.cache.pages = 2;
           },
           "pages is 2; it must be between 3 and 16777216"},
          {[](D& d) { d.body.attention_prefill.reserved0 = 1; },
           "of the attention_prefill descriptor is not zero"},
          {[](D& d) { d.body.attention_prefill.reserved1[1] = 1; }, "is not zero"},
          {[](D& d) { d.body.attention_prefill.reserved2 = 1; }, "is not zero"},
          {[](D& d) { d.body.attention_prefill.query_starts.scales = 1; }, "is not zero"},
      });
}

TEST(AdmitStepOpsTest, EveryBadOperandOfAnAttentionPrefillHasItsSentence) {
  ExpectRefusals(
      GoodAttentionPrefill(),
      {
          {[](D& d) { d.body.attention_prefill.q = {}; }, "q is required"},
          {[](D& d) { d.body.attention_prefill.query_starts = {}; }, "query_starts is required"},
          {[](D& d) { d.body.attention_prefill.lengths = {}; }, "lengths is required"},
          {[](D& d) { d.body.attention_prefill.cache.v.buffer = 5; }, "v_cache lies on GPU 1"},
          {[](D& d) { d.body.attention_prefill.q.offset = 8; },
           "q.offset 8 is not a multiple of 16 bytes"},
          {[](D& d) { d.body.attention_prefill.out.offset = 8; },
           "out.offset 8 is not a multiple of 16 bytes"},
          {[](D& d) { d.body.attention_prefill.query_starts.offset = 2; },
           "query_starts.offset 2 is not a multiple of 4 bytes"},
          {[](D& d) { d.body.attention_prefill.q.offset = kMiB - 16; }, "q needs 20480 bytes"},
          {[](D& d) { d.body.attention_prefill.page_table.offset = kMiB - 44; },
           "page_table needs 48 bytes"},
          {[](D& d) { d.body.attention_prefill.lengths.offset = kMiB - 8; },
           "lengths needs 12 bytes"},
          {[](D& d) { d.body.attention_prefill.query_starts.offset = kMiB - 12; },
           "query_starts needs 16 bytes"},
          {[](D& d) { d.body.attention_prefill.out = d.body.attention_prefill.q; },
           "out overlaps q"},
          {[](D& d) { d.body.attention_prefill.query_starts.offset = 65536; },
           "out overlaps query_starts"},
          {[](D& d) {
             d.body.attention_prefill.out = {2, 0, 0};
           },
           "out overlaps k_cache"},
      });
}

TEST(AdmitStepOpsTest, AnAttentionPrefillCostsWhatEvenChunksAtTheEndOfTheLongestWould) {
  D d = GoodAttentionPrefill();
  Op op;
  ASSERT_TRUE(Admit(d, op).ok());
  // Chunks of 14, whose tokens attend to 53.5 of 60 on average.
  const uint64_t rows_bytes = 40 * 4 * 64 * 4 + 7 * 4;
  EXPECT_EQ(op.work.flops, 4 * 40 * 54 * 4 * 64u);
  EXPECT_EQ(op.work.hbm_bytes, 3 * 60 * 2 * 64 * 4u + rows_bytes);
  EXPECT_EQ(op.work.m, 3 * 2u);
  EXPECT_EQ(op.work.runs_on, policies::RunsOn::kSms);
  EXPECT_FALSE(op.work.is_gemm());
  EXPECT_FALSE(op.work.chains());
  EXPECT_EQ(ModesOf(d), (FieldModes{{CONCERT_FIELD_Q, AccessMode::kRead},
                                    {CONCERT_FIELD_QUERY_STARTS, AccessMode::kRead},
                                    {CONCERT_FIELD_PAGE_TABLE, AccessMode::kRead},
                                    {CONCERT_FIELD_LENGTHS, AccessMode::kRead},
                                    {CONCERT_FIELD_OUT, AccessMode::kWrite},
                                    {CONCERT_FIELD_K_CACHE, AccessMode::kRead},
                                    {CONCERT_FIELD_V_CACHE, AccessMode::kRead}}));
  d.body.attention_prefill.window = 10;
  ASSERT_TRUE(Admit(d, op).ok());
  EXPECT_EQ(op.work.flops, 4 * 40 * 10 * 4 * 64u);
  EXPECT_EQ(op.work.hbm_bytes, 3 * 23 * 2 * 64 * 4u + rows_bytes);
  // More new tokens than sequences may have.
  d.body.attention_prefill.window = 0;
  d.body.attention_prefill.length_max = 5;
  ASSERT_TRUE(Admit(d, op).ok());
  EXPECT_EQ(op.work.flops, 4 * 40 * 3 * 4 * 64u);
}

}  // namespace
}  // namespace concert::kernels
