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

}  // namespace
}  // namespace concert::kernels
