#include "kernels/group/batched_library.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/kernels/fake_cuda.h"

namespace concert::test {
namespace {

using kernels::Activation;
using kernels::Op;
using kernels::cuda::AreOneBatch;
using kernels::cuda::BatchedLibrary;
using kernels::cuda::LaunchContext;
using kernels::cuda::PointerRing;
using policies::Dtype;

std::vector<Op> EqualGemms(int count) {
  std::vector<Op> ops(count);
  for (int i = 0; i < count; ++i) {
    Op& op = ops[i];
    op.kind = CONCERT_OP_GEMM;
    op.gemm = {};
    op.gemm.m = 16, op.gemm.n = 256, op.gemm.k = 128, op.gemm.batch = 1;
    op.gemm.a = 0x100000 * (i + 1), op.gemm.w = op.gemm.a + 0x10000,
    op.gemm.d = op.gemm.a + 0x20000;
    op.gemm.lda = op.gemm.ldw = 128, op.gemm.ldd = 256;
    op.gemm.alpha = 1;
    op.gemm.dtype = op.gemm.d_dtype = Dtype::kBf16;
  }
  return ops;
}

std::vector<const Op*> Pointers(const std::vector<Op>& ops) {
  std::vector<const Op*> pointers;
  for (const Op& op : ops) pointers.push_back(&op);
  return pointers;
}

class BatchedLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.offers[0] = {{.id = 66}};
    ASSERT_TRUE(library_.Init().ok());
  }
  bool Launch(const std::vector<Op>& ops, policies::Lane lane = 0) {
    LaunchContext context = fake_.Context(lane);
    const absl::StatusOr<bool> launched = library_.TryLaunch(context, lane, Pointers(ops));
    EXPECT_TRUE(launched.ok()) << launched.status();
    return launched.ok() && *launched;
  }

  FakeCuda fake_;
  BatchedLibrary library_{fake_.api().driver, 0};
};

TEST_F(BatchedLibraryTest, OneLaunchCarriesAllPointers) {
  std::vector<Op> ops = EqualGemms(3);
  for (Op& op : ops) op.gemm.beta = 0.5f, op.gemm.c = op.gemm.a + 0x30000, op.gemm.ldc = 256;
  ASSERT_TRUE(Launch(ops));
  ASSERT_EQ(fake_.launches.size(), 1u);
  const FakeLaunch& launch = fake_.launches[0];
  EXPECT_TRUE(launch.pointer_array);
  EXPECT_EQ(launch.batch, 3);
  EXPECT_EQ(launch.stream, FakeCuda::StreamOf(0));
  const auto array = [](uint64_t address) { return reinterpret_cast<const uint64_t*>(address); };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(array(launch.w)[i], ops[i].gemm.w);
    EXPECT_EQ(array(launch.a)[i], ops[i].gemm.a);
    EXPECT_EQ(array(launch.c)[i], ops[i].gemm.c);
    EXPECT_EQ(array(launch.d)[i], ops[i].gemm.d);
  }
}

TEST_F(BatchedLibraryTest, WithoutBetaCIsD) {
  const std::vector<Op> ops = EqualGemms(2);
  ASSERT_TRUE(Launch(ops));
  const FakeLaunch& launch = fake_.launches[0];
  EXPECT_EQ(reinterpret_cast<const uint64_t*>(launch.c)[1], ops[1].gemm.d);
}

TEST_F(BatchedLibraryTest, PlansOncePerCount) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Launch(EqualGemms(4)));
  EXPECT_EQ(fake_.heuristic_calls, 1);
  EXPECT_TRUE(Launch(EqualGemms(5)));
  EXPECT_EQ(fake_.heuristic_calls, 2);
}

// The worst alignment of all ops is what a kernel may rely on.
TEST_F(BatchedLibraryTest, PlansAnewForAWorseAlignedMember) {
  std::vector<Op> ops = EqualGemms(4);
  EXPECT_TRUE(Launch(ops));
  ops[2].gemm.w += 2;
  EXPECT_TRUE(Launch(ops));
  EXPECT_EQ(fake_.heuristic_calls, 2);
}

// A slot's memory is not touched while its upload may be on its way; nothing waits for it.
TEST_F(BatchedLibraryTest, FullRingSaysNoUntilAnUploadIsOver) {
  const std::vector<Op> ops = EqualGemms(2);
  for (int i = 0; i < PointerRing::kSlotsPerLane; ++i) EXPECT_TRUE(Launch(ops));
  EXPECT_FALSE(Launch(ops));
  EXPECT_TRUE(Launch(ops, 1)) << "each lane has a ring of its own";
  fake_.unfinished.clear();
  EXPECT_TRUE(Launch(ops));
  std::set<uint64_t> arrays;
  for (int i = 0; i < PointerRing::kSlotsPerLane; ++i) arrays.insert(fake_.launches[i].w);
  EXPECT_EQ(arrays.size(), static_cast<size_t>(PointerRing::kSlotsPerLane));
}

TEST_F(BatchedLibraryTest, LibraryWithoutPointerArraysSaysNo) {
  fake_.pointer_arrays = false;
  EXPECT_FALSE(Launch(EqualGemms(2)));
  EXPECT_FALSE(Launch(EqualGemms(2)));
  EXPECT_EQ(fake_.heuristic_calls, 0);
  EXPECT_TRUE(fake_.unfinished.empty()) << "nothing was uploaded";
}

TEST_F(BatchedLibraryTest, RefusalIsRemembered) {
  fake_.matmul_status = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_FALSE(Launch(EqualGemms(2)));
  fake_.matmul_status = CUBLAS_STATUS_SUCCESS;
  EXPECT_FALSE(Launch(EqualGemms(2)));
  EXPECT_TRUE(Launch(EqualGemms(3)));
}

TEST_F(BatchedLibraryTest, FailureIsAnError) {
  fake_.matmul_status = CUBLAS_STATUS_EXECUTION_FAILED;
  LaunchContext context = fake_.Context();
  const std::vector<Op> ops = EqualGemms(2);
  EXPECT_EQ(library_.TryLaunch(context, 0, Pointers(ops)).status().code(),
            absl::StatusCode::kInternal);
}

TEST_F(BatchedLibraryTest, ActivationThatCannotBeFusedSaysNo) {
  std::vector<Op> ops = EqualGemms(2);
  for (Op& op : ops) op.gemm.activation = Activation::kRelu;
  EXPECT_FALSE(Launch(ops));
  fake_.epilogues.insert(CUBLASLT_EPILOGUE_GELU);
  for (Op& op : ops) op.gemm.activation = Activation::kGelu;
  EXPECT_TRUE(Launch(ops));
}

TEST(AreOneBatch, NeedsEqualGemms) {
  const auto with = [](auto change) {
    std::vector<Op> ops = EqualGemms(4);
    change(ops[2].gemm);
    return AreOneBatch(Pointers(ops));
  };
  using Args = kernels::GemmArgs;
  EXPECT_TRUE(with([](Args&) {}));
  EXPECT_TRUE(with([](Args& g) { g.w = 1234; }));
  EXPECT_TRUE(with([](Args& g) { g.ldc = 7; })) << "C is not read";
  EXPECT_FALSE(with([](Args& g) { g.m = 17; }));
  EXPECT_FALSE(with([](Args& g) { g.n = 255; }));
  EXPECT_FALSE(with([](Args& g) { g.k = 127; }));
  EXPECT_FALSE(with([](Args& g) { g.batch = 2; }));
  EXPECT_FALSE(with([](Args& g) { g.lda = 136; }));
  EXPECT_FALSE(with([](Args& g) { g.ldw = 136; }));
  EXPECT_FALSE(with([](Args& g) { g.ldd = 264; }));
  EXPECT_FALSE(with([](Args& g) { g.alpha = 2; }));
  EXPECT_FALSE(with([](Args& g) { g.alpha = std::nanf(""); }));
  EXPECT_FALSE(with([](Args& g) { g.beta = 1; }));
  EXPECT_FALSE(with([](Args& g) { g.bias = 4096; }));
  EXPECT_FALSE(with([](Args& g) { g.dtype = Dtype::kFp16; }));
  EXPECT_FALSE(with([](Args& g) { g.d_dtype = Dtype::kFp16; }));
  EXPECT_FALSE(with([](Args& g) { g.activation = Activation::kRelu; }));
}

TEST(AreOneBatch, Fp8IsNone) {
  std::vector<Op> ops = EqualGemms(4);
  for (Op& op : ops) op.gemm.dtype = Dtype::kFp8E4m3;
  EXPECT_FALSE(AreOneBatch(Pointers(ops)));
}

TEST(AreOneBatch, EndsAsTheLibraryKnows) {
  std::vector<Op> ops = EqualGemms(3);
  for (Op& op : ops) {
    op.gemm.activation = Activation::kGelu;
    op.gemm.beta = 1, op.gemm.c = op.gemm.a + 0x30000, op.gemm.ldc = 256;
  }
  EXPECT_TRUE(AreOneBatch(Pointers(ops)));
  ops[2].gemm.residual = true;
  EXPECT_FALSE(AreOneBatch(Pointers(ops)));
  for (Op& op : ops) op.gemm.residual = true;
  EXPECT_FALSE(AreOneBatch(Pointers(ops)));
  for (Op& op : ops) op.gemm.residual = false;
  EXPECT_TRUE(AreOneBatch(Pointers(ops)));
  ops[1].gemm.gated = true;
  EXPECT_FALSE(AreOneBatch(Pointers(ops)));
  ops[1].gemm.gated = false;
  ops[1].gemm.a_scales = 0x10, ops[1].gemm.a_scales_per_row = true;
  EXPECT_FALSE(AreOneBatch(Pointers(ops)));
}

TEST(AreOneBatch, IsBounded) {
  EXPECT_FALSE(AreOneBatch(Pointers(EqualGemms(1))));
  EXPECT_TRUE(AreOneBatch(Pointers(EqualGemms(kernels::kMaxGroupProblems))));
  EXPECT_FALSE(AreOneBatch(Pointers(EqualGemms(kernels::kMaxGroupProblems + 1))));
  std::vector<Op> ops = EqualGemms(2);
  ops[1].kind = CONCERT_OP_COPY;
  EXPECT_FALSE(AreOneBatch(Pointers(ops)));
  std::swap(ops[0], ops[1]);
  EXPECT_FALSE(AreOneBatch(Pointers(ops)));
}

}  // namespace
}  // namespace concert::test
