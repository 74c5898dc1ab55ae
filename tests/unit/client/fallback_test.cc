// CONCERT_FALLBACK=cublas on a real GPU, against a double-precision reference. Skips without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "concert/concert.hpp"
#include "tests/support/bf16.h"
#include "tests/support/seed.h"
#include "tests/support/test_device.h"

namespace concert {
namespace {

using testing::HasSubstr;

class FallbackTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<Session> session =
        Session::Connect({.socket_path = "/nonexistent", .fallback = Fallback::kCublas});
    if (!session.ok()) CONCERT_END_WITHOUT_GPU(session.status().message());
    session_ = std::move(session).value();
    queue_ = session_.CreateQueue({.priority = kHigh}).value();
  }

  std::vector<float> Random(size_t count) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(count);
    for (float& value : values) value = uniform(random_);
    return values;
  }

  Buffer Upload(const std::vector<float>& values) {
    Buffer buffer = session_.Allocate(values.size() * sizeof(float)).value();
    buffer.Write(values.data(), values.size() * sizeof(float)).Check();
    return buffer;
  }

  std::vector<float> Download(const Buffer& buffer) {
    std::vector<float> values(buffer.bytes() / sizeof(float));
    buffer.Read(values.data(), buffer.bytes()).Check();
    return values;
  }

  std::mt19937 random_{test::Seed()};
  Session session_;
  Queue queue_;
};

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST_F(FallbackTest, GemmWithEverythingMatchesTheReference) {
  constexpr uint32_t kM = 48, kN = 80, kK = 64, kBatch = 2;
  const std::vector<float> a = Random(kBatch * kM * kK), w = Random(kN * kK);
  const std::vector<float> c = Random(kBatch * kM * kN), bias = Random(kN);
  const Buffer a_buffer = Upload(a), w_buffer = Upload(w), c_buffer = Upload(c);
  const Buffer bias_buffer = Upload(bias);
  const Buffer d_buffer = Upload(std::vector<float>(kBatch * kM * kN, NAN));
  for (Activation activation : {kNone, kRelu, kGelu}) {
    const Ticket ticket = queue_.Gemm({.m = kM,
                                       .n = kN,
                                       .k = kK,
                                       .batch = kBatch,
                                       .a = a_buffer,
                                       .w = w_buffer,
                                       .c = c_buffer,
                                       .d = d_buffer,
                                       .bias = bias_buffer,
                                       .stride_w = CONCERT_STRIDE_SHARED,
                                       .alpha = 0.5f,
                                       .beta = 2.0f,
                                       .dtype = kFp32,
                                       .activation = activation});
    ASSERT_TRUE(ticket.Wait().ok()) << ticket.Wait().message();
    const std::vector<float> d = Download(d_buffer);
    for (size_t row = 0; row < kBatch * kM; ++row) {
      for (size_t col = 0; col < kN; ++col) {
        double sum = 0;
        for (size_t k = 0; k < kK; ++k) sum += double{a[row * kK + k]} * w[col * kK + k];
        double expected = 0.5 * sum + 2.0 * c[row * kN + col] + bias[col];
        if (activation == kRelu) expected = std::max(expected, 0.0);
        if (activation == kGelu) expected = Gelu(expected);
        ASSERT_NEAR(d[row * kN + col], expected, 2e-3) << row << "," << col << " " << activation;
      }
    }
  }
}

// All of A is 1 and all of W 0.5, so that D[i,j] is 32 * a_scale * w_scale, exact in fp8 and bf16.
class Fp8FallbackTest : public FallbackTest {
 protected:
  static constexpr uint32_t kM = 32, kN = 48, kK = 64;

  void SetUp() override {
    FallbackTest::SetUp();
    if (IsSkipped()) return;
    const std::vector<uint8_t> ones(kM * kK, 0x38), halves(kN * kK, 0x30);  // e4m3
    a_ = session_.Allocate(ones.size()).value();
    w_ = session_.Allocate(halves.size()).value();
    d_ = session_.Allocate(kM * kN * 2).value();
    a_.Write(ones.data(), ones.size()).Check();
    w_.Write(halves.data(), halves.size()).Check();
    for (uint32_t i = 0; i < kN; ++i) scales_.push_back(static_cast<float>(1 + i % 5));
    a_scales_ = Upload(scales_), w_scales_ = Upload(scales_);
    op_ = {.m = kM, .n = kN, .k = kK, .a = a_, .w = w_, .d = d_, .dtype = kFp8E4m3};
    op_.d_dtype = kBf16;
    op_.a_scales = a_scales_, op_.w_scales = w_scales_;
  }

  template <typename Scale>
  void CheckResult(Scale scale) {
    std::vector<uint16_t> bits(kM * kN);
    d_.Read(bits.data(), bits.size() * 2).Check();
    for (uint32_t at = 0; at < bits.size(); ++at) {
      ASSERT_EQ(test::FromBf16(bits[at]), 32 * scale(at / kN, at % kN)) << at;
    }
  }

  void ExpectRefused(const std::string& why) {
    const Ticket ticket = queue_.Gemm(op_);
    EXPECT_EQ(ticket.Wait().code(), CONCERT_UNIMPLEMENTED);
    EXPECT_THAT(ticket.Wait().message(), testing::AllOf(HasSubstr(why), HasSubstr("concertd")));
  }

  Buffer a_, w_, d_, a_scales_, w_scales_;
  std::vector<float> scales_;
  GemmOp op_;
};

TEST_F(Fp8FallbackTest, IsScaledPerTensor) {
  op_.w_scales = {w_scales_, 16};
  const Ticket ticket = queue_.Gemm(op_);
  ASSERT_TRUE(ticket.Wait().ok()) << ticket.Wait().message();
  CheckResult([&](uint32_t, uint32_t) { return scales_[0] * scales_[4]; });
}

TEST_F(Fp8FallbackTest, IsScaledPerRowWhereCublasLtCan) {
  op_.a_scales_per_row = op_.w_scales_per_row = true;
  const Ticket ticket = queue_.Gemm(op_);
  if (ticket.Wait().code() == CONCERT_UNIMPLEMENTED) {  // before 12.9, and on other GPUs
    EXPECT_THAT(ticket.Wait().message(), HasSubstr("has no kernel"));
    return;
  }
  ASSERT_TRUE(ticket.Wait().ok()) << ticket.Wait().message();
  CheckResult([&](uint32_t i, uint32_t j) { return scales_[i] * scales_[j]; });
}

TEST_F(Fp8FallbackTest, WhatIsNotAlignedIsRefusedByName) {
  const GemmOp good = op_;
  op_.w_scales = {w_scales_, 4};
  ExpectRefused("the address of w_scales is ");
  op_ = good, op_.k = kK - 8, op_.lda = op_.ldw = kK;
  ExpectRefused("k is 56; ");
  op_ = good, op_.k = 16, op_.ldw = kK - 8;
  ExpectRefused("ldw is 56; ");
  op_ = good, op_.n = 16, op_.ldd = 17;
  ExpectRefused("ldd in bytes is 34; ");
  op_ = good, op_.a_scales_per_row = true;
  ExpectRefused("both A and W");
}

TEST_F(FallbackTest, OpsWaitAcrossQueuesAndForTheClient) {
  const std::vector<float> values = Random(256);
  const Buffer from = Upload(values), middle = Upload(std::vector<float>(256, NAN));
  const Buffer to = Upload(std::vector<float>(256, NAN));
  Queue second = session_.CreateQueue().value();
  UserTimeline gate = session_.CreateUserTimeline().value();
  const Ticket one =
      queue_.Copy({.src = from, .dst = middle, .bytes = 1024}, {.waits = {gate.At(1)}});
  const Ticket two = second.Copy({.src = middle, .dst = to, .bytes = 1024}, {.waits = {one}});
  EXPECT_FALSE(one.Done());
  EXPECT_EQ(two.Wait(std::chrono::milliseconds(5)).code(), CONCERT_DEADLINE_EXCEEDED);
  gate.Signal(1).Check();
  ASSERT_TRUE(two.Wait().ok());
  EXPECT_EQ(Download(to), values);
}

TEST_F(FallbackTest, BadOpsAreRefusedBeforeTheyReachTheGpu) {
  const Buffer small = session_.Allocate(64).value();
  EXPECT_THAT(
      queue_.Gemm({.m = 8, .n = 8, .k = 8, .a = small, .w = small, .d = small}).Wait().message(),
      HasSubstr("a needs 128 bytes at offset 0, but buffer"));
  EXPECT_EQ(queue_
                .Gemm({.m = 1,
                       .n = 1,
                       .k = 8,
                       .a = small,
                       .w = small,
                       .d = {small, 32},
                       .activation = kSilu})
                .Wait()
                .code(),
            CONCERT_UNIMPLEMENTED);
  EXPECT_THAT(queue_
                  .Gemm({.m = 1,
                         .n = 2,
                         .k = 8,
                         .a = small,
                         .w = small,
                         .d = {small, 32},
                         .activation = kGelu,
                         .gated = true})
                  .Wait()
                  .message(),
              HasSubstr("gated products are not available"));
  EXPECT_THAT(queue_
                  .Gemm({.m = 1,
                         .n = 1,
                         .k = 8,
                         .a = small,
                         .w = small,
                         .c = {small, 32},
                         .d = {small, 32},
                         .beta = 1,
                         .activation = kRelu,
                         .residual = true})
                  .Wait()
                  .message(),
              HasSubstr("a residual behind activation 1 is not available"));
  EXPECT_EQ(session_.Join({.name = "g"}).status().code(), CONCERT_UNIMPLEMENTED);
  EXPECT_EQ(small.Seal().code(), CONCERT_UNIMPLEMENTED);
}

}  // namespace
}  // namespace concert
