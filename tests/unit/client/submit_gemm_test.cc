// Submitting GEMMs: what their descriptors hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/unit/client/submit_fixture.h"

namespace concert {
namespace {

using testing::HasSubstr;

TEST_F(SubmitTest, GemmFillsInStridesAndPublishes) {
  const Ticket ticket = queue_.Gemm({.m = 4,
                                     .n = 16,
                                     .k = 8,
                                     .batch = 3,
                                     .a = x_,
                                     .w = {x_, 256},
                                     .d = {y_, 64},
                                     .stride_w = CONCERT_STRIDE_SHARED,
                                     .alpha = 0.5f,
                                     .dtype = kFp16,
                                     .activation = kSilu,
                                     .allow_tf32 = true});
  ASSERT_TRUE(ticket.submit_status().ok());
  EXPECT_EQ(ticket.get().timeline, CONCERT_TIMELINE_ID(7, 0));
  EXPECT_EQ(ticket.get().value, 1u);
  ASSERT_EQ(daemon_.tail(), 1u);
  const concert_descriptor d = daemon_.descriptor(0);
  EXPECT_EQ(d.sequence, 1u);
  EXPECT_EQ(d.ticket, 1u);
  EXPECT_EQ(d.queue, 0u);
  EXPECT_EQ(d.kind, CONCERT_OP_GEMM);
  EXPECT_EQ(d.flags, 0u);
  EXPECT_EQ(d.wait_count, 0u);
  const concert_gemm_body& g = d.body.gemm;
  EXPECT_EQ(g.m, 4u);
  EXPECT_EQ(g.n, 16u);
  EXPECT_EQ(g.k, 8u);
  EXPECT_EQ(g.batch, 3u);
  EXPECT_EQ(g.a.buffer, 1u);
  EXPECT_EQ(g.w.buffer, 1u);
  EXPECT_EQ(g.w.offset, 256u);
  EXPECT_EQ(g.d.buffer, 2u);
  EXPECT_EQ(g.d.offset, 64u);
  EXPECT_EQ(g.c.buffer, 0u);
  EXPECT_EQ(g.bias.buffer, 0u);
  EXPECT_EQ(g.lda, 8u);
  EXPECT_EQ(g.ldw, 8u);
  EXPECT_EQ(g.ldc, 16u);
  EXPECT_EQ(g.ldd, 16u);
  EXPECT_EQ(g.stride_a, 32u);
  EXPECT_EQ(g.stride_w, 0u);
  EXPECT_EQ(g.stride_d, 64u);
  EXPECT_EQ(g.alpha, 0.5f);
  EXPECT_EQ(g.beta, 0.0f);
  EXPECT_EQ(g.dtype, CONCERT_ABI_FP16);
  EXPECT_EQ(g.activation, CONCERT_ABI_ACT_SILU);
  EXPECT_EQ(g.flags, CONCERT_GEMM_ALLOW_TF32);
  EXPECT_EQ(g.a.scales | g.w.scales | g.d_dtype, 0u);
  EXPECT_EQ(g.reserved0[0] | g.reserved0[1] | g.reserved0[2], 0u);
  EXPECT_EQ(g.a_scales_offset | g.w_scales_offset, 0u);
}

TEST_F(SubmitTest, AnFp8GemmCarriesItsScales) {
  queue_
      .Gemm({.m = 4,
             .n = 16,
             .k = 8,
             .a = x_,
             .w = {x_, 256},
             .d = y_,
             .dtype = kFp8E4m3,
             .d_dtype = kFp16,
             .a_scales = {y_, 1024},
             .w_scales = {x_, 2048},
             .w_scales_per_row = true})
      .submit_status()
      .Check();
  const concert_gemm_body& g = daemon_.descriptor(0).body.gemm;
  EXPECT_EQ(g.dtype, CONCERT_ABI_FP8_E4M3);
  EXPECT_EQ(g.d_dtype, CONCERT_ABI_FP16);
  EXPECT_EQ(g.a.buffer, 1u);
  EXPECT_EQ(g.a.scales, 2u);
  EXPECT_EQ(g.a_scales_offset, 1024u);
  EXPECT_EQ(g.w.buffer, 1u);
  EXPECT_EQ(g.w.scales, 1u);
  EXPECT_EQ(g.w_scales_offset, 2048u);
  EXPECT_EQ(g.flags, CONCERT_GEMM_W_SCALES_PER_ROW);
}

TEST_F(SubmitTest, AGemmCarriesItsResidual) {
  queue_
      .Gemm({.m = 4,
             .n = 16,
             .k = 8,
             .a = x_,
             .w = {x_, 256},
             .c = {y_, 512},
             .d = y_,
             .ldc = 24,
             .beta = 1,
             .activation = kGelu,
             .residual = true})
      .submit_status()
      .Check();
  const concert_gemm_body& g = daemon_.descriptor(0).body.gemm;
  EXPECT_EQ(g.c.buffer, 2u);
  EXPECT_EQ(g.c.offset, 512u);
  EXPECT_EQ(g.ldc, 24u);
  EXPECT_EQ(g.beta, 1);
  EXPECT_EQ(g.activation, CONCERT_ABI_ACT_GELU);
  EXPECT_EQ(g.flags, CONCERT_GEMM_RESIDUAL);
}

TEST_F(SubmitTest, AGatedGemmHasRowsOfHalfTheProduct) {
  queue_
      .Gemm({.m = 4,
             .n = 16,
             .k = 8,
             .a = x_,
             .w = {x_, 256},
             .d = y_,
             .activation = kSilu,
             .gated = true,
             .gate_interleaved = true})
      .submit_status()
      .Check();
  const concert_gemm_body& g = daemon_.descriptor(0).body.gemm;
  EXPECT_EQ(g.n, 16u);
  EXPECT_EQ(g.ldd, 8u);
  EXPECT_EQ(g.flags, CONCERT_GEMM_GATED | CONCERT_GEMM_GATE_INTERLEAVED);
}

TEST_F(SubmitTest, AGemmOfAnyDtypeCarriesScalesOfRows) {
  queue_
      .Gemm({.m = 4,
             .n = 16,
             .k = 8,
             .a = x_,
             .w = {x_, 256},
             .d = y_,
             .dtype = kBf16,
             .a_scales = {y_, 1024},
             .a_scales_per_row = true})
      .submit_status()
      .Check();
  const concert_gemm_body& g = daemon_.descriptor(0).body.gemm;
  EXPECT_EQ(g.a.scales, 2u);
  EXPECT_EQ(g.a_scales_offset, 1024u);
  EXPECT_EQ(g.w.scales | g.w_scales_offset, 0u);
  EXPECT_EQ(g.flags, CONCERT_GEMM_A_SCALES_PER_ROW);
}

TEST_F(SubmitTest, AnOlderCallersGemmHasNoScales) {
  concert_gemm gemm = {};
  std::memset(&gemm, 0xff, sizeof(gemm));  // what lies past struct_size must not be read
  gemm.struct_size = offsetof(concert_gemm, a_scales);
  gemm.m = gemm.n = gemm.k = gemm.batch = 1;
  gemm.a = gemm.w = gemm.c = gemm.d = gemm.bias = {};
  ASSERT_EQ(concert_submit_gemm(queue_.get(), &gemm, nullptr, nullptr, nullptr), CONCERT_OK);
  const concert_gemm_body& g = daemon_.descriptor(0).body.gemm;
  EXPECT_EQ(g.a.scales | g.w.scales | g.d_dtype, 0u);
}

TEST_F(SubmitTest, AForgottenAlphaIsRefusedAndNoOtherIs) {
  concert_gemm gemm = {};
  gemm.struct_size = sizeof(gemm);
  gemm.m = gemm.n = gemm.k = 1;
  concert_error error{};
  EXPECT_EQ(concert_submit_gemm(queue_.get(), &gemm, nullptr, nullptr, &error),
            CONCERT_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("CONCERT_GEMM_INIT"));
  EXPECT_EQ(daemon_.tail(), 0u);
  const concert_gemm defaults = CONCERT_GEMM_INIT;
  EXPECT_EQ(defaults.struct_size, sizeof(defaults));
  gemm.alpha = defaults.alpha;
  EXPECT_EQ(concert_submit_gemm(queue_.get(), &gemm, nullptr, nullptr, nullptr), CONCERT_OK);
  EXPECT_EQ(daemon_.descriptor(0).body.gemm.alpha, 1.0f);
  gemm.alpha = 0, gemm.beta = 1;  // D = C, and as in BLAS
  EXPECT_EQ(concert_submit_gemm(queue_.get(), &gemm, nullptr, nullptr, nullptr), CONCERT_OK);
  const float any[] = {NAN, INFINITY, -INFINITY};
  for (const float scalar : any) {
    gemm.alpha = scalar, gemm.beta = 0;
    EXPECT_EQ(concert_submit_gemm(queue_.get(), &gemm, nullptr, nullptr, nullptr), CONCERT_OK);
    gemm.alpha = 0, gemm.beta = scalar;
    EXPECT_EQ(concert_submit_gemm(queue_.get(), &gemm, nullptr, nullptr, nullptr), CONCERT_OK);
  }
}

TEST_F(SubmitTest, WideEnumsAreNotCutToValidOnes) {
  concert_gemm gemm = {};
  gemm.struct_size = sizeof(gemm);
  gemm.alpha = 1;
  gemm.dtype = 256 + CONCERT_BF16;
  gemm.flags = 0x10000;
  ASSERT_EQ(concert_submit_gemm(queue_.get(), &gemm, nullptr, nullptr, nullptr), CONCERT_OK);
  EXPECT_EQ(daemon_.descriptor(0).body.gemm.dtype, 255u);
  EXPECT_EQ(daemon_.descriptor(0).body.gemm.flags, 0xffffu);
}

}  // namespace
}  // namespace concert
