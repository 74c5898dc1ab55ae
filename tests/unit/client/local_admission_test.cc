// What runs without a daemon is not refused by one: the fallback's checks say of any op, good or
// spoilt, what admission says of it.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "client/src/local/operands.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"
#include "tests/unit/kernels/admit_fixture.h"

namespace concert {
namespace {

class LocalAdmissionTest : public testing::Test {
 protected:
  // kernels::kBuffers by the same handles. Those that are none there are none here.
  LocalAdmissionTest() {
    for (uint32_t handle = 1; handle < kernels::kBuffers.size(); ++handle) {
      const kernels::BufferRange& buffer = kernels::kBuffers[handle];
      buffers_.Add({buffer.address, buffer.bytes, static_cast<uint32_t>(buffer.gpu)});
    }
  }

  void ExpectTheSame(const concert_descriptor& descriptor) {
    kernels::Op op;
    const kernels::Failure daemons = kernels::Admit(descriptor, op);
    concert_descriptor located = descriptor;
    concert_error error{};
    const int code = descriptor.kind == CONCERT_OP_GEMM
                         ? client::LocateGemm(located, buffers_, 0, &error)
                         : client::LocateCopy(located, buffers_, 0, &error);
    if (code == CONCERT_UNIMPLEMENTED) return;  // memory of another GPU
    ASSERT_EQ(code, static_cast<int>(daemons.status))
        << error.message << " | " << daemons.ToString();
    if (code != CONCERT_OK) {
      ASSERT_EQ(error.message, daemons.ToString());
      ++refused_;
    } else {
      ++taken_;
      ExpectTheSameAddresses(op, located);
    }
  }

  static void ExpectTheSameAddresses(const kernels::Op& op, const concert_descriptor& located) {
    if (op.kind == CONCERT_OP_COPY) {
      EXPECT_EQ(located.body.copy.src.offset, op.copy.src);
      EXPECT_EQ(located.body.copy.dst.offset, op.copy.dst);
      return;
    }
    const concert_gemm_body& body = located.body.gemm;
    EXPECT_EQ(body.a.offset, op.gemm.a);
    EXPECT_EQ(body.w.offset, op.gemm.w);
    EXPECT_EQ(body.c.offset, op.gemm.c);
    EXPECT_EQ(body.d.offset, op.gemm.d);
    EXPECT_EQ(body.bias.offset, op.gemm.bias);
    EXPECT_EQ(body.a_scales_offset, op.gemm.a_scales);
    EXPECT_EQ(body.w_scales_offset, op.gemm.w_scales);
  }

  uint64_t Below(uint64_t n) { return random_() % n; }

  uint64_t Number() {
    switch (Below(6)) {
      case 0:
        return random_();
      case 1:
        return (uint64_t{1} << Below(64)) + Below(3) - 1;
      default:
        return Below(70);
    }
  }

  // One of these with some of its fields replaced.
  concert_descriptor Spoilt(const std::vector<concert_descriptor>& good) {
    concert_descriptor descriptor = good[Below(good.size())];
    if (descriptor.kind == CONCERT_OP_COPY) {
      SpoilOperand(descriptor.body.copy.src);
      SpoilOperand(descriptor.body.copy.dst);
      if (Below(3) == 0) descriptor.body.copy.bytes = Number();
      return descriptor;
    }
    concert_gemm_body& body = descriptor.body.gemm;
    for (concert_operand* operand : {&body.a, &body.w, &body.c, &body.d, &body.bias})
      SpoilOperand(*operand);
    const auto one_of = [&](auto... fields) {
      uint64_t chosen = Below(sizeof...(fields) * 3);
      ((chosen-- == 0
            ? void(*fields = static_cast<std::remove_pointer_t<decltype(fields)>>(Number()))
            : void()),
       ...);
    };
    one_of(&body.m, &body.n, &body.k, &body.batch);
    one_of(&body.lda, &body.ldw, &body.ldc, &body.ldd);
    one_of(&body.stride_a, &body.stride_w, &body.stride_c, &body.stride_d);
    one_of(&body.a.scales, &body.w.scales, &body.a_scales_offset, &body.w_scales_offset);
    if (Below(6) == 0) body.dtype = static_cast<uint8_t>(Below(7));
    if (Below(6) == 0) body.d_dtype = static_cast<uint8_t>(Below(6));
    if (Below(6) == 0) body.activation = static_cast<uint8_t>(Below(6));
    if (Below(6) == 0) body.flags = static_cast<uint16_t>(1u << Below(8));
    if (Below(6) == 0) body.beta = static_cast<float>(Below(2));
    return descriptor;
  }

  void SpoilOperand(concert_operand& operand) {
    if (Below(8) == 0) operand.buffer = static_cast<uint32_t>(Below(10));
    if (Below(8) == 0) operand.offset = Number();
  }

  std::mt19937_64 random_{test::Seed()};
  client::BufferTable buffers_;
  int taken_ = 0, refused_ = 0;
};

const std::vector<concert_descriptor>& Good() {
  static const auto* const good = new std::vector<concert_descriptor>{
      kernels::GoodGemm(),         kernels::GoodFp8Gemm(),   kernels::GoodScaledGemm(),
      kernels::GoodResidualGemm(), kernels::GoodGatedGemm(), kernels::GoodCopy()};
  return *good;
}

TEST_F(LocalAdmissionTest, SaysOfGoodOpsWhatADaemonSays) {
  for (const concert_descriptor& descriptor : Good()) ExpectTheSame(descriptor);
  EXPECT_EQ(taken_, 6);
}

TEST_F(LocalAdmissionTest, SaysOfSpoiltOpsWhatADaemonSays) {
  const uint32_t count = test::Repetitions(200'000);
  for (uint32_t i = 0; i < count && !HasFatalFailure(); ++i) ExpectTheSame(Spoilt(Good()));
  EXPECT_GT(taken_, 0);
  EXPECT_GT(refused_, 0);
}

}  // namespace
}  // namespace concert
