// What ends a GEMM beside bias and an activation: scales of rows, residuals and gates.
#include "tests/unit/kernels/refusals.h"

namespace concert::kernels {
namespace {

using D = concert_descriptor;

TEST(AdmitEpilogueTest, RowsOfAnyDtypeMayHaveScales) {
  Op op;
  for (const uint8_t dtype : {CONCERT_ABI_BF16, CONCERT_ABI_FP16, CONCERT_ABI_FP32}) {
    concert_descriptor descriptor = GoodScaledGemm();
    descriptor.body.gemm.dtype = dtype;
    ASSERT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
    EXPECT_EQ(op.gemm.a_scales, 0x20000000u + 131072);
    EXPECT_TRUE(op.gemm.a_scales_per_row);
    EXPECT_FALSE(op.gemm.w_scales_per_row);
    EXPECT_FALSE(op.gemm.EndsPlainly());
    EXPECT_EQ(op.work.groupable(), dtype != CONCERT_ABI_FP32) << "the group kernel knows scales";
    EXPECT_THAT(op.buffers, testing::ElementsAre(1, 1, 3, 2, 2, 2));
  }
  ASSERT_TRUE(Admit(GoodScaledGemm(), op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 2u * (64 * 16 + 32 * 16 + 2 * 64 * 32 + 32) + 4 * 64);
}

TEST(AdmitEpilogueTest, RefusesOtherScales) {
  const char* const of_w = "w_scales are given, but dtype is bf16; other operands than those in";
  ExpectRefusals(
      GoodScaledGemm(),
      {
          {[](D& d) { d.body.gemm.w.scales = 2; }, of_w},
          {[](D& d) {
             d.body.gemm.w.scales = 2;
             d.body.gemm.flags |= CONCERT_GEMM_W_SCALES_PER_ROW;
           },
           of_w},
          {[](D& d) { d.body.gemm.flags = 0; },
           "a_scales are given, but dtype is bf16; other operands than those in"},
          {[](D& d) { d.body.gemm.a.scales = 0; },
           "flags say that there is one scale per row, but the buffer of a_scales is 0"},
          {[](D& d) { d.body.gemm.a_scales_offset = kMiB - 252; },
           "a_scales needs 256 bytes at offset 1048324, but buffer 2 has only 1048576 bytes"},
          {[](D& d) { d.body.gemm.a_scales_offset += 2; },
           "a_scales.offset 131074 is not a multiple of 4 bytes"},
          {[](D& d) {
             d.body.gemm.d = {2, 0, 131072 + 254};
           },
           "d overlaps a_scales"},
      });
}

TEST(AdmitEpilogueTest, AResidualIsOneBehindAnActivationAlone) {
  Op op;
  concert_descriptor descriptor = GoodResidualGemm();
  descriptor.body.gemm.activation = CONCERT_ABI_ACT_NONE;
  ASSERT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
  EXPECT_FALSE(op.gemm.residual);
  EXPECT_TRUE(op.gemm.EndsPlainly());
  EXPECT_TRUE(op.work.groupable());
  descriptor = GoodResidualGemm();
  ASSERT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
  EXPECT_TRUE(op.gemm.residual);
  EXPECT_FALSE(op.gemm.EndsPlainly());
  EXPECT_FALSE(op.work.chains()) << "the group kernel adds C before the activation";
  EXPECT_EQ(op.gemm.c, 0x20000000u);
  EXPECT_THAT(op.buffers, testing::ElementsAre(1, 1, 3, 2, 2));
  descriptor.body.gemm.d = descriptor.body.gemm.c;
  EXPECT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
  descriptor.body.gemm.d.offset += 64;
  EXPECT_EQ(Admit(descriptor, op).message, CONCERT_MESSAGE_OVERLAP) << "shifted by a row";
}

TEST(AdmitEpilogueTest, RefusesAResidualThatIsNotThere) {
  ExpectRefusals(
      GoodResidualGemm(),
      {
          {[](D& d) { d.body.gemm.beta = 0; },
           "flags is 8, which says that C is a residual, but beta is 0, so that C is not "
           "read; set beta, to 1 as a rule, or clear flag 8"},
          {[](D& d) { d.body.gemm.c = {}; }, "c is required for this op but its buffer is 0"},
          {[](D& d) { d.body.gemm.ldc = 31; },
           "ldc is 31; a row holds 32 elements, so it must be at least that"},
      });
}

TEST(AdmitEpilogueTest, AGatedProductIsTwiceAsWideAsD) {
  Op op;
  for (const bool interleaved : {false, true}) {
    concert_descriptor descriptor = GoodGatedGemm();
    if (interleaved) descriptor.body.gemm.flags |= CONCERT_GEMM_GATE_INTERLEAVED;
    ASSERT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
    EXPECT_TRUE(op.gemm.gated);
    EXPECT_EQ(op.gemm.interleaved, interleaved);
    EXPECT_EQ(op.gemm.n, 32u);
    EXPECT_EQ(op.gemm.d_columns(), 16u);
    EXPECT_FALSE(op.gemm.EndsPlainly());
    EXPECT_FALSE(op.work.chains()) << "the group kernel gates nothing";
    EXPECT_EQ(op.work.n, 32u);
    EXPECT_EQ(op.work.flops, 2u * 64 * 32 * 16);
    EXPECT_EQ(op.work.hbm_bytes, 2u * (64 * 16 + 32 * 16 + 64 * 16 + 32));
    EXPECT_THAT(op.buffers, testing::ElementsAre(1, 1, 3, 2));
    const Accesses accesses = AccessesOf(op);
    const Access& d = accesses.list()[2];
    EXPECT_EQ(d.field, CONCERT_FIELD_D);
    EXPECT_EQ(d.memory.Bounds(), (ByteRange{0x30000000, 0x30000000 + 64 * 16 * 2}));
  }
  concert_descriptor descriptor = GoodGatedGemm();
  descriptor.body.gemm.d.offset = kMiB - 64 * 16 * 2;
  EXPECT_TRUE(Admit(descriptor, op).ok()) << "D has no more than this";
}

TEST(AdmitEpilogueTest, RefusesWhatCannotBeGated) {
  ExpectRefusals(
      GoodGatedGemm(),
      {
          {[](D& d) { d.body.gemm.n = 31; }, "n is 31, which is not a multiple of 2"},
          {[](D& d) { d.body.gemm.n = 0; }, "n is 0; it must be between 1 and 16777216"},
          {[](D& d) { d.body.gemm.activation = CONCERT_ABI_ACT_RELU; },
           "activation is 1, but flags gate the product; a gate's must be gelu (2) or silu (3)"},
          {[](D& d) { d.body.gemm.activation = CONCERT_ABI_ACT_NONE; }, "activation is 0, but"},
          {[](D& d) { d.body.gemm.beta = 0.5f; },
           "beta is 0.5, but flags gate the product, to which no C is added; set beta to 0 and add "
           "with an elementwise op"},
          {[](D& d) {
             d.body.gemm.flags |= CONCERT_GEMM_RESIDUAL;
             d.body.gemm.beta = 1;
           },
           "beta is 1, but flags gate the product"},
          {[](D& d) { d.body.gemm.flags = CONCERT_GEMM_GATE_INTERLEAVED; },
           "flags is 32, which says how gates lie in a product that it does not gate; set flag 16, "
           "too, or clear flag 32"},
          {[](D& d) { d.body.gemm.ldd = 15; },
           "ldd is 15; a row holds 16 elements, so it must be at least that"},
          {[](D& d) { d.body.gemm.d.offset = kMiB - 64 * 16 * 2 + 2; },
           "d needs 2048 bytes at offset 1046530, but buffer 3 has only 1048576 bytes"},
          {[](D& d) { d.body.gemm.bias.offset = kMiB - 62; },
           "bias needs 64 bytes at offset 1048514, but buffer 2 has only 1048576 bytes"},
          {[](D& d) {
             d.body.gemm.d = {1, 0, 65536 + 31 * 16 * 2};
           },
           "d overlaps w"},
          {[](D& d) {
             d.body.gemm.batch = 2;
             d.body.gemm.stride_d = 64 * 16 - 1;
           },
           "stride_d is 1023, so matrices of the batch share elements of d; one spans 1024"},
      });
}

}  // namespace
}  // namespace concert::kernels
