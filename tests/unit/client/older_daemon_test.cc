// Submitting to a daemon of an older minor version, which knows fewer ops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/submit_fixture.h"

namespace concert {
namespace {

using test::FakeDaemon;
using testing::HasSubstr;

class OlderDaemon : public SubmitTest {
 protected:
  OlderDaemon()
      : SubmitTest(FakeDaemon::Options{.edit_hello = [](concert_hello_reply& reply) {
          reply.abi_minor = 0;
          reply.features &= ~CONCERT_OP_FEATURES;
        }}) {}
};

TEST_F(OlderDaemon, GetsNoFp8) {
  const GemmOp gemm{.m = 1, .n = 1, .k = 1, .a = x_, .w = x_, .d = y_};
  EXPECT_TRUE(queue_.Gemm(gemm).submit_status().ok());
  GemmOp fp8 = gemm;
  fp8.dtype = kFp8E4m3, fp8.d_dtype = kBf16;
  const Status status = queue_.Gemm(fp8).submit_status();
  EXPECT_EQ(status.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(status.message(), HasSubstr("update concertd"));
  EXPECT_EQ(daemon_.tail(), 1u);
}

TEST_F(OlderDaemon, GetsNoEpiloguesThatItDoesNotKnow) {
  const GemmOp gemm{.m = 1, .n = 1, .k = 1, .a = x_, .w = x_, .c = y_, .d = y_, .beta = 1};
  EXPECT_TRUE(queue_.Gemm(gemm).submit_status().ok());
  GemmOp residual = gemm;
  residual.residual = true;
  const Status status = queue_.Gemm(residual).submit_status();
  EXPECT_EQ(status.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(status.message(), HasSubstr("C is a residual"));
  GemmOp scaled = gemm;
  scaled.a_scales = x_, scaled.a_scales_per_row = true;
  const Status of_scaled = queue_.Gemm(scaled).submit_status();
  EXPECT_EQ(of_scaled.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(of_scaled.message(), HasSubstr("rows of A have scales"));
  GemmOp gated = gemm;
  gated.n = 2, gated.beta = 0, gated.activation = kSilu, gated.gated = true;
  const Status of_gated = queue_.Gemm(gated).submit_status();
  EXPECT_EQ(of_gated.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(of_gated.message(), HasSubstr("the product is gated"));
  EXPECT_EQ(daemon_.tail(), 1u);
}

TEST_F(OlderDaemon, SealsNoBuffers) {
  const Status status = x_.Seal();
  EXPECT_EQ(status.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(status.message(), HasSubstr("sealed buffers"));
  EXPECT_TRUE(x_.Address().ok()) << "it is as it was";
}

TEST_F(OlderDaemon, GetsNoRowOps) {
  const Status norm =
      queue_.RmsNorm({.rows = 1, .columns = 1, .x = x_, .weight = x_, .out = y_}).submit_status();
  EXPECT_EQ(norm.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(norm.message(), HasSubstr("the op is an rms_norm, which this daemon does not know"));
  const Status gated =
      queue_.GatedActivation({.rows = 1, .columns = 1, .x = x_, .out = y_}).submit_status();
  EXPECT_EQ(gated.code(), CONCERT_UNIMPLEMENTED);
  const Status embedding = queue_.Embedding({.ids = x_, .table = x_, .out = y_}).submit_status();
  EXPECT_EQ(embedding.code(), CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(embedding.message(), HasSubstr("the op is an embedding"));
  const Status argmax = queue_.Argmax({.x = x_, .indices = y_}).submit_status();
  EXPECT_THAT(argmax.message(), HasSubstr("the op is an argmax"));
  const Status rope = queue_.RopeAppend({.q = x_, .k = x_, .v = x_}).submit_status();
  EXPECT_THAT(rope.message(), HasSubstr("the op is a rope_append"));
  const Status layer = queue_.LayerNorm({.x = x_, .weight = x_, .out = y_}).submit_status();
  EXPECT_THAT(layer.message(), HasSubstr("the op is a layer_norm"));
  const Status elementwise = queue_.Elementwise({.x = x_, .y = x_, .out = y_}).submit_status();
  EXPECT_THAT(elementwise.message(), HasSubstr("the op is elementwise"));
  const Status attention = queue_.AttentionDecode({.q = x_, .out = y_}).submit_status();
  EXPECT_THAT(attention.message(), HasSubstr("the op is an attention_decode"));
  const Status advance = queue_.Advance({.counters = x_}).submit_status();
  EXPECT_THAT(advance.message(), HasSubstr("the op is an advance"));
  const Status quantize = queue_.Quantize({.x = x_, .out = y_}).submit_status();
  EXPECT_THAT(quantize.message(), HasSubstr("the op is a quantize"));
  const Status sample = queue_.Sample({.x = x_, .indices = y_}).submit_status();
  EXPECT_THAT(sample.message(), HasSubstr("the op is a sample"));
  const Status prefill = queue_.AttentionPrefill({.q = x_, .out = y_}).submit_status();
  EXPECT_THAT(prefill.message(), HasSubstr("the op is an attention_prefill"));
  EXPECT_EQ(daemon_.tail(), 0u);
}

}  // namespace
}  // namespace concert
