// Bad input of norms, gated_activation and elementwise, and what the good is worth and touches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/unit/kernels/admit_fixture.h"
#include "tests/unit/kernels/refusals.h"

namespace concert::kernels {
namespace {

using D = concert_descriptor;

TEST(AdmitRowOpsTest, EveryBadRmsNormHasItsSentence) {
  ExpectRefusals(
      GoodRmsNorm(),
      {
          {[](D& d) { d.body.rms_norm.rows = 0; }, "rows is 0; it must be between 1 and 16777216"},
          {[](D& d) { d.body.rms_norm.rows = UINT32_MAX; }, "rows is 4294967295"},
          {[](D& d) { d.body.rms_norm.columns = 0; }, "columns is 0"},
          {[](D& d) { d.body.rms_norm.columns = 1 << 25; }, "columns is 33554432"},
          {[](D& d) { d.body.rms_norm.dtype = 0; }, "dtype is 0"},
          {[](D& d) { d.body.rms_norm.dtype = CONCERT_ABI_FP8_E4M3; }, "dtype is 4"},
          {[](D& d) { d.body.rms_norm.flags = 2; }, "flags is 2"},
          {[](D& d) { d.body.rms_norm.reserved0 = 1; }, "of the rms_norm descriptor is not zero"},
          {[](D& d) { d.body.rms_norm.reserved1[10] = 1; }, "is not zero"},
          {[](D& d) { d.body.rms_norm.weight.scales = 1; }, "is not zero"},
          {[](D& d) { d.reserved1[2] = 1; }, "is not zero"},
          {[](D& d) { d.body.rms_norm.x = {}; }, "x is required"},
          {[](D& d) { d.body.rms_norm.weight = {}; }, "weight is required"},
          {[](D& d) { d.body.rms_norm.out = {}; }, "out is required"},
          {[](D& d) { d.body.rms_norm.x.buffer = 4; }, "x.buffer is 4, which is not a buffer"},
          {[](D& d) { d.body.rms_norm.residual.buffer = 5; }, "residual lies on GPU 1"},
          {[](D& d) { d.body.rms_norm.x_stride = 63; }, "x_stride is 63; a row holds 64 elements"},
          {[](D& d) { d.body.rms_norm.out_stride = 0; }, "out_stride is 0"},
          {[](D& d) { d.body.rms_norm.residual_stride = 1; }, "residual_stride is 1"},
          {[](D& d) { d.body.rms_norm.out_stride = kHuge / 2; }, "extent of out does not fit"},
          {[](D& d) { d.body.rms_norm.x.offset = kHuge - 1; }, "extent of x does not fit"},
          {[](D& d) { d.body.rms_norm.x_stride = 1 << 20; }, "x needs"},
          {[](D& d) { d.body.rms_norm.weight.offset = kMiB - 126; }, "weight needs 128 bytes"},
          {[](D& d) { d.body.rms_norm.weight.offset = kHuge - 1; },
           "extent of weight does not fit"},
          {[](D& d) { d.body.rms_norm.residual.offset = kMiB - 2; }, "residual needs 1024 bytes"},
          {[](D& d) { d.body.rms_norm.residual_stride = kHuge / 4; },
           "extent of residual does not fit"},
          {[](D& d) { d.body.rms_norm.out.offset = 1; }, "out.offset 1 is not a multiple of 2"},
          {[](D& d) { d.body.rms_norm.x.offset = 3; }, "x.offset 3 is not a multiple of 2"},
          {[](D& d) { d.body.rms_norm.weight.offset = 65537; },
           "weight.offset 65537 is not a multiple of 2"},
          {[](D& d) { d.body.rms_norm.residual.offset = 5; },
           "residual.offset 5 is not a multiple of 2"},
          {[](D& d) {
             d.body.rms_norm.weight = {7, 0, 0};
           },
           "weight.offset 0 is not a multiple of 2"},
          {[](D& d) {
             d.body.rms_norm.out = {1, 0, 2};
           },
           "out overlaps x"},
          {[](D& d) {
             d.body.rms_norm.out = d.body.rms_norm.x;
             d.body.rms_norm.out_stride = 65;
           },
           "out overlaps x"},
          {[](D& d) {
             d.body.rms_norm.out = {1, 0, 65536};
           },
           "out overlaps weight"},
          {[](D& d) {
             d.body.rms_norm.out = {2, 0, 0};
           },
           "out overlaps residual"},
          {[](D& d) {
             d.body.rms_norm.residual = {1, 0, 0};
           },
           "residual overlaps x"},
          {[](D& d) {
             d.body.rms_norm.residual = {1, 0, 65000};
           },
           "residual overlaps weight"},
      });
}

// What they share with rms_norm is looked at above.
TEST(AdmitRowOpsTest, EveryBadLayerNormHasItsSentence) {
  ExpectRefusals(
      GoodLayerNorm(),
      {
          {[](D& d) { d.body.layer_norm.rows = 0; }, "rows is 0"},
          {[](D& d) { d.body.layer_norm.columns = 0; }, "columns is 0"},
          {[](D& d) { d.body.layer_norm.dtype = CONCERT_ABI_FP8_E4M3; }, "dtype is 4"},
          {[](D& d) { d.body.layer_norm.reserved0[2] = 1; },
           "of the layer_norm descriptor is not zero"},
          {[](D& d) { d.body.layer_norm.reserved1[8] = 1; }, "is not zero"},
          {[](D& d) { d.body.layer_norm.bias.scales = 1; }, "is not zero"},
          {[](D& d) { d.body.layer_norm.x = {}; }, "x is required"},
          {[](D& d) { d.body.layer_norm.weight = {}; }, "weight is required"},
          {[](D& d) { d.body.layer_norm.out = {}; }, "out is required"},
          {[](D& d) { d.body.layer_norm.x_stride = 63; }, "x_stride is 63"},
          {[](D& d) { d.body.layer_norm.residual_stride = 1; }, "residual_stride is 1"},
          {[](D& d) { d.body.layer_norm.bias.buffer = 4; }, "bias.buffer is 4"},
          {[](D& d) { d.body.layer_norm.bias.buffer = 5; }, "bias lies on GPU 1"},
          {[](D& d) { d.body.layer_norm.bias.offset = 1; }, "bias.offset 1"},
          {[](D& d) { d.body.layer_norm.bias.offset = kMiB - 126; }, "bias needs 128 bytes"},
          {[](D& d) { d.body.layer_norm.bias.offset = kHuge - 1; }, "extent of bias does not fit"},
          {[](D& d) {
             d.body.layer_norm.out = {1, 0, 2};
           },
           "out overlaps x"},
          {[](D& d) {
             d.body.layer_norm.out = {1, 0, 131072};
           },
           "out overlaps bias"},
          {[](D& d) {
             d.body.layer_norm.residual = {1, 0, 131072 - 1000};
           },
           "residual overlaps bias"},
          {[](D& d) {
             d.body.layer_norm.residual = {1, 0, 0};
           },
           "residual overlaps x"},
      });
}

TEST(AdmitRowOpsTest, ALayerNormNeedsNoBias) {
  D norm = GoodLayerNorm();
  Op op;
  ASSERT_TRUE(Admit(norm, op).ok());
  EXPECT_EQ(op.work.hbm_bytes, (4 * 8 * 64 + 2 * 64) * 2u);
  EXPECT_EQ(ModesOf(norm).at(CONCERT_FIELD_BIAS), AccessMode::kReadEarly);
  norm.body.layer_norm.bias = {0, 0, 12345};
  norm.body.layer_norm.residual = {};
  norm.body.layer_norm.out = norm.body.layer_norm.x;
  ASSERT_TRUE(Admit(norm, op).ok());
  EXPECT_EQ(op.layer_norm.bias, 0u);
  EXPECT_EQ(op.work.hbm_bytes, (2 * 8 * 64 + 64) * 2u);
  EXPECT_EQ(ModesOf(norm),
            (std::map<concert_field, AccessMode>{{CONCERT_FIELD_INPUT, AccessMode::kRead},
                                                 {CONCERT_FIELD_WEIGHT, AccessMode::kReadEarly},
                                                 {CONCERT_FIELD_OUT, AccessMode::kReadWrite}}));
}

TEST(AdmitRowOpsTest, EveryBadElementwiseHasItsSentence) {
  ExpectRefusals(
      GoodElementwise(),
      {
          {[](D& d) { d.body.elementwise.rows = 0; }, "rows is 0"},
          {[](D& d) { d.body.elementwise.columns = 0; }, "columns is 0"},
          {[](D& d) { d.body.elementwise.function = 0; },
           "function is 0; it must be between 1 and 3"},
          {[](D& d) { d.body.elementwise.function = 4; }, "function is 4"},
          {[](D& d) { d.body.elementwise.dtype = CONCERT_ABI_FP8_E4M3; }, "dtype is 4"},
          {[](D& d) { d.body.elementwise.out_dtype = 0; }, "out_dtype is 0"},
          {[](D& d) { d.body.elementwise.out_dtype = CONCERT_ABI_INT32; }, "out_dtype is 5"},
          {[](D& d) { d.body.elementwise.reserved0 = 1; },
           "of the elementwise descriptor is not zero"},
          {[](D& d) { d.body.elementwise.reserved1 = 1; }, "is not zero"},
          {[](D& d) { d.body.elementwise.reserved2[12] = 1; }, "is not zero"},
          {[](D& d) { d.body.elementwise.y.scales = 1; }, "is not zero"},
          {[](D& d) { d.body.elementwise.x = {}; }, "x is required"},
          {[](D& d) { d.body.elementwise.y = {}; }, "y is required"},
          {[](D& d) { d.body.elementwise.out = {}; }, "out is required"},
          {[](D& d) { d.body.elementwise.x_stride = 63; }, "x_stride is 63"},
          {[](D& d) { d.body.elementwise.y_stride = 63; }, "y_stride is 63"},
          {[](D& d) { d.body.elementwise.out_stride = 0; }, "out_stride is 0"},
          {[](D& d) { d.body.elementwise.y.buffer = 5; }, "y lies on GPU 1"},
          {[](D& d) { d.body.elementwise.y.offset = 1; }, "y.offset 1"},
          {[](D& d) { d.body.elementwise.out.offset = 2; }, "out.offset 2 is not a multiple of 4"},
          {[](D& d) { d.body.elementwise.out.offset = kMiB - 2044; }, "out needs 2048 bytes"},
          {[](D& d) { d.body.elementwise.x_stride = kHuge / 2; }, "extent of x does not fit"},
          {[](D& d) {
             d.body.elementwise.out = {1, 0, 0};
           },
           "out overlaps x"},
          {[](D& d) {
             d.body.elementwise.out = {2, 0, 4};
           },
           "out overlaps y"},
      });
}

TEST(AdmitRowOpsTest, AnElementwiseMayBeInPlaceShareARowOrNeedNoY) {
  D d = GoodElementwise();
  Op op;
  ASSERT_TRUE(Admit(d, op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 8 * 64 * (2 + 2 + 4u));
  d.body.elementwise.out_dtype = CONCERT_ABI_BF16;
  d.body.elementwise.out = d.body.elementwise.y;
  ASSERT_TRUE(Admit(d, op).ok()) << Admit(d, op).ToString();
  EXPECT_EQ(ModesOf(d).at(CONCERT_FIELD_OUT), AccessMode::kReadWrite);
  d.body.elementwise.y_stride = 0;
  EXPECT_THAT(Admit(d, op).ToString(), testing::HasSubstr("out overlaps y"));
  d.body.elementwise.out = d.body.elementwise.x;
  ASSERT_TRUE(Admit(d, op).ok()) << Admit(d, op).ToString();
  EXPECT_EQ(op.work.hbm_bytes, (8 * 64 * 2 + 64) * 2u);
  d.body.elementwise.function = CONCERT_ABI_CAST;
  d.body.elementwise.y = {};
  ASSERT_TRUE(Admit(d, op).ok());
  EXPECT_EQ(op.buffers.size(), 2u);
}

// One row of y in fp32 and two of out in bf16 are the same bytes, but not the same elements.
TEST(AdmitRowOpsTest, AnElementwiseIsNotInPlaceInWhatIsAsLong) {
  D d = GoodElementwise();
  d.body.elementwise.rows = 2;
  d.body.elementwise.dtype = CONCERT_ABI_FP32;
  d.body.elementwise.out_dtype = CONCERT_ABI_BF16;
  d.body.elementwise.y_stride = 0;
  Op op;
  ASSERT_TRUE(Admit(d, op).ok()) << Admit(d, op).ToString();
  d.body.elementwise.out = d.body.elementwise.y;
  EXPECT_THAT(Admit(d, op).ToString(), testing::HasSubstr("out overlaps y"));
  // As long an element is as good: each is read before it is written.
  d.body.elementwise.dtype = CONCERT_ABI_FP16;
  d.body.elementwise.rows = 1;
  ASSERT_TRUE(Admit(d, op).ok()) << Admit(d, op).ToString();
  EXPECT_EQ(ModesOf(d).at(CONCERT_FIELD_OUT), AccessMode::kReadWrite);
}

TEST(AdmitRowOpsTest, EveryBadGatedActivationHasItsSentence) {
  ExpectRefusals(
      GoodGatedActivation(),
      {
          {[](D& d) { d.body.gated_activation.rows = 0; }, "rows is 0"},
          {[](D& d) { d.body.gated_activation.rows = (1 << 24) + 1; }, "rows is 16777217"},
          {[](D& d) { d.body.gated_activation.columns = 0; }, "columns is 0"},
          {[](D& d) { d.body.gated_activation.columns = UINT32_MAX; }, "columns is 4294967295"},
          {[](D& d) { d.body.gated_activation.dtype = 0; }, "dtype is 0"},
          {[](D& d) { d.body.gated_activation.dtype = CONCERT_ABI_FP8_E4M3; }, "dtype is 4"},
          {[](D& d) { d.body.gated_activation.activation = CONCERT_ABI_ACT_RELU; },
           "activation is 1; it must be between 2 and 3"},
          {[](D& d) { d.body.gated_activation.activation = 4; }, "activation is 4"},
          {[](D& d) { d.body.gated_activation.flags = 4; }, "flags is 4"},
          {[](D& d) { d.body.gated_activation.reserved0 = 1; },
           "of the gated_activation descriptor is not zero"},
          {[](D& d) { d.body.gated_activation.reserved1[15] = 1; }, "is not zero"},
          {[](D& d) { d.body.gated_activation.x.scales = 1; }, "is not zero"},
          {[](D& d) { d.body.gated_activation.x = {}; }, "x is required"},
          {[](D& d) { d.body.gated_activation.out = {}; }, "out is required"},
          {[](D& d) { d.body.gated_activation.x_stride = 127; },
           "x_stride is 127; a row holds 128 elements"},
          {[](D& d) { d.body.gated_activation.out_stride = 63; }, "out_stride is 63"},
          {[](D& d) { d.body.gated_activation.x.buffer = 77; },
           "x.buffer is 77, which is not a buffer"},
          {[](D& d) { d.body.gated_activation.out.buffer = 4; },
           "out.buffer is 4, which is not a buffer"},
          {[](D& d) { d.body.gated_activation.x.buffer = 5; }, "x lies on GPU 1"},
          {[](D& d) { d.body.gated_activation.out.buffer = 5; }, "out lies on GPU 1"},
          {[](D& d) { d.body.gated_activation.x_stride = kHuge / 2; }, "extent of x does not fit"},
          {[](D& d) { d.body.gated_activation.out_stride = kHuge; }, "extent of out does not fit"},
          {[](D& d) { d.body.gated_activation.x.offset = kHuge - 3; }, "extent of x does not fit"},
          {[](D& d) { d.body.gated_activation.out.offset = kHuge - 3; },
           "extent of out does not fit"},
          {[](D& d) { d.body.gated_activation.x_stride = 1 << 20; }, "x needs"},
          {[](D& d) { d.body.gated_activation.x.offset = 2; }, "x.offset 2 is not a multiple of 4"},
          {[](D& d) { d.body.gated_activation.out.offset = 6; },
           "out.offset 6 is not a multiple of 4"},
          {[](D& d) {
             d.body.gated_activation.out = {7, 0, 0};
           },
           "out.offset 0 is not a multiple of 4"},
          {[](D& d) { d.body.gated_activation.out.offset = kMiB - 2044; }, "out needs 2048 bytes"},
          {[](D& d) { d.body.gated_activation.out = d.body.gated_activation.x; }, "out overlaps x"},
          {[](D& d) {
             d.body.gated_activation.out = {1, 0, 8 * 128 * 4 - 4};
           },
           "out overlaps x"},
          {[](D& d) {  // out's last element is x's first
             d.body.gated_activation.x = {1, 0, 8 * 64 * 4 - 4};
             d.body.gated_activation.out = {1, 0, 0};
           },
           "out overlaps x"},
      });
}

TEST(AdmitRowOpsTest, WhatIsAbsentIsIgnored) {
  D norm = GoodRmsNorm();
  norm.body.rms_norm.residual = {0, 0, 12345};
  norm.body.rms_norm.residual_stride = 1;
  Op op;
  ASSERT_TRUE(Admit(norm, op).ok());
  EXPECT_EQ(op.rms_norm.residual, 0u);
  EXPECT_EQ(op.buffers.size(), 3u);
}

TEST(AdmitRowOpsTest, EpsilonMayBeAnyFloat) {
  D norm = GoodRmsNorm();
  Op op;
  for (const float epsilon : {0.0f, -1.0f, INFINITY, std::nanf("")}) {
    norm.body.rms_norm.epsilon = epsilon;
    EXPECT_TRUE(Admit(norm, op).ok()) << epsilon;
  }
}

TEST(AdmitRowOpsTest, TheyCostTheirBytesAndRunOnSms) {
  Op op;
  ASSERT_TRUE(Admit(GoodRmsNorm(), op).ok());
  EXPECT_EQ(op.work.runs_on, policies::RunsOn::kSms);
  EXPECT_FALSE(op.work.is_gemm());
  EXPECT_EQ(op.work.hbm_bytes, (4 * 8 * 64 + 64) * 2u);
  ASSERT_TRUE(Admit(GoodGatedActivation(), op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 3 * 8 * 64 * 4u);
  EXPECT_EQ(op.work.m, 8u);
}

TEST(AdmitRowOpsTest, ANormUpdatesItsResidualAndMayReadItsWeightEarly) {
  EXPECT_EQ(ModesOf(GoodRmsNorm()),
            (std::map<concert_field, AccessMode>{{CONCERT_FIELD_INPUT, AccessMode::kRead},
                                                 {CONCERT_FIELD_RESIDUAL, AccessMode::kReadWrite},
                                                 {CONCERT_FIELD_WEIGHT, AccessMode::kReadEarly},
                                                 {CONCERT_FIELD_OUT, AccessMode::kWrite}}));
  D in_place = GoodRmsNorm();
  in_place.body.rms_norm.out = in_place.body.rms_norm.x;
  EXPECT_EQ(ModesOf(in_place).at(CONCERT_FIELD_OUT), AccessMode::kReadWrite);
  EXPECT_EQ(ModesOf(GoodGatedActivation()),
            (std::map<concert_field, AccessMode>{{CONCERT_FIELD_INPUT, AccessMode::kRead},
                                                 {CONCERT_FIELD_OUT, AccessMode::kWrite}}));
}

}  // namespace
}  // namespace concert::kernels
