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
          {[](D& d) { d.flags = 1; }, "is not zero"},
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

}  // namespace
}  // namespace concert::kernels
