// Norms and gates in launches with GEMMs that follow one another, of every backend.
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "tests/conformance/row_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

// Two chains of a layer's ops, GEMM, norm, GEMM, gate, GEMM, in five launches that carry an op of
// each. On a GPU a launch starts beside the end of the one before and waits for what it follows.
class ChainConformanceTest : public RowOpsConformanceTest {
 protected:
  static constexpr Dtype kDtype = Dtype::kBf16;
  static constexpr uint32_t kTokens = 48, kHidden = 256, kInner = 384;

  struct Chain {
    uint32_t residual = 0, out = 0;
    Values first_residual, want;
    std::array<Op, 5> ops;
  };

  static Values Multiply(const Values& a, const Values& w, uint32_t n, uint32_t k) {
    Values d(kTokens * n);
    for (uint32_t i = 0; i < kTokens; ++i) {
      for (uint32_t j = 0; j < n; ++j) {
        for (uint32_t p = 0; p < k; ++p) d[i * n + j] += a[i * k + p] * w[j * k + p];
      }
    }
    return Rounded(kDtype, d);
  }
  static Values NewWeights(uint32_t n, uint32_t k, uint64_t seed) {
    Values w = RandomNumbers(kDtype, uint64_t{n} * k, seed);
    for (double& value : w) value *= 0.125;  // exact
    return w;
  }

  Op Gemm(uint32_t a, const Values& w, uint32_t d, uint32_t n, uint32_t k) {
    concert_descriptor descriptor{};
    concert_gemm_body& body = descriptor.body.gemm;
    body.m = kTokens, body.n = n, body.k = k, body.batch = 1;
    body.a.buffer = a, body.w.buffer = NewBuffer(Encode(kDtype, w)), body.d.buffer = d;
    body.lda = body.ldw = k, body.ldd = n;
    body.alpha = 1;
    body.dtype = static_cast<uint8_t>(kDtype);
    return Make(descriptor, CONCERT_OP_GEMM);
  }
  Op Norm(uint32_t x, uint32_t residual, const Values& weight, uint32_t out) {
    concert_descriptor descriptor{};
    descriptor.body.rms_norm =
        RmsNormConformanceTest::BodyOf({{"", kTokens, kHidden}, kDtype, true, false});
    concert_rms_norm_body& body = descriptor.body.rms_norm;
    body.x.buffer = x, body.residual.buffer = residual, body.out.buffer = out;
    body.weight.buffer = NewBuffer(Encode(kDtype, weight));
    return Make(descriptor, CONCERT_OP_RMS_NORM);
  }
  Op Gate(uint32_t x, uint32_t out) {
    concert_descriptor descriptor{};
    concert_gated_activation_body& body = descriptor.body.gated_activation;
    body.rows = kTokens, body.columns = kInner;
    body.x.buffer = x, body.out.buffer = out;
    body.x_stride = 2 * kInner, body.out_stride = kInner;
    body.dtype = static_cast<uint8_t>(kDtype);
    body.activation = CONCERT_ABI_ACT_SILU;
    return Make(descriptor, CONCERT_OP_GATED_ACTIVATION);
  }

  Chain MakeChain(uint64_t seed) {
    const Values x = RandomNumbers(kDtype, kTokens * kHidden, seed);
    const Values weight = RandomNumbers(kDtype, kHidden, seed + 1);
    const Values w_out = NewWeights(kHidden, kHidden, seed + 2);
    const Values w_up = NewWeights(2 * kInner, kHidden, seed + 3);
    const Values w_down = NewWeights(kHidden, kInner, seed + 4);
    Chain chain;
    chain.first_residual = RandomNumbers(kDtype, kTokens * kHidden, seed + 5);
    chain.residual = NewBuffer(Encode(kDtype, chain.first_residual));
    const auto poisoned = [&](uint32_t columns) { return NewPoisoned(kTokens * columns * 2); };
    const uint32_t projected = poisoned(kHidden), normal = poisoned(kHidden),
                   up = poisoned(2 * kInner), gated = poisoned(kInner);
    chain.out = poisoned(kHidden);
    chain.ops = {Gemm(NewBuffer(Encode(kDtype, x)), w_out, projected, kHidden, kHidden),
                 Norm(projected, chain.residual, weight, normal),
                 Gemm(normal, w_up, up, 2 * kInner, kHidden), Gate(up, gated),
                 Gemm(gated, w_down, chain.out, kHidden, kInner)};

    Values sums = Multiply(x, w_out, kHidden, kHidden);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += chain.first_residual[i];
    const Values normals =
        Rounded(kDtype, RmsNormConformanceTest::Expected({{"", kTokens, kHidden}, kDtype},
                                                         Rounded(kDtype, sums), weight));
    const Values wide = Multiply(normals, w_up, 2 * kInner, kHidden);
    Values gates;
    for (uint32_t i = 0; i < kTokens; ++i) {
      for (uint32_t j = 0; j < kInner; ++j) {
        const double* row = wide.data() + i * 2 * kInner;
        gates.push_back(Activate(CONCERT_ABI_ACT_SILU, row[j]) * row[kInner + j]);
      }
    }
    chain.want = Multiply(Rounded(kDtype, gates), w_down, kHidden, kInner);
    return chain;
  }

  // One launch with the chains' ops of this step; Word(i) becomes `value` when that of chain i is
  // done.
  void LaunchStep(std::span<const Chain> chains, int step, uint64_t value) {
    std::vector<const Op*> ops;
    std::vector<TimelineWrite> writes;
    std::vector<kernels::Predecessor> after;
    std::vector<policies::Problem> problems;
    for (const Chain& chain : chains) {
      const auto i = static_cast<uint16_t>(ops.size());
      ops.push_back(&chain.ops[static_cast<size_t>(step)]);
      writes.push_back({WordAddress(i), value});
      after.push_back(step == 0 ? kernels::Predecessor{}
                                : kernels::Predecessor{.launches_back = 1, .op = i});
      problems.push_back(policies::Problem::Of(ops.back()->work));
    }
    const kernels::GroupWorkList* list =
        ops.front()->work.is_gemm() ? compiler_.Compile(problems, 0) : nullptr;
    const absl::Status status =
        gpu().Launch({.planned = {.form = policies::Form::kGroup, .work_list = list},
                      .ops = ops,
                      .writes = writes,
                      .after = after,
                      .inputs_ready = true,
                      .weights_ready = true});
    ASSERT_TRUE(status.ok()) << status;
  }

  kernels::GroupCompiler compiler_{policies::DeviceModel()};
};

TEST_P(ChainConformanceTest, NormsAndGatesFollowGemmsAndAreFollowed) {
  if (!gpu().info().model.group_kernel) GTEST_SKIP() << "no launches follow one another here";
  const std::vector<Chain> chains = {MakeChain(10), MakeChain(20)};
  uint64_t value = 0;
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    for (const Chain& chain : chains) Write(chain.residual, Encode(kDtype, chain.first_residual));
    for (const Chain& chain : chains) Write(chain.out, Bytes(kTokens * kHidden * 2, kPoison));
    for (int step = 0; step < 5; ++step) {
      ASSERT_NO_FATAL_FAILURE(LaunchStep(chains, step, ++value));
    }
    for (int i = 0; i < 2; ++i) WaitFor(i, value);
    for (const Chain& chain : chains) {
      const Values got = Decode(kDtype, Read(chain.out, kTokens * kHidden * 2));
      EXPECT_LE(RelativeError(got, chain.want), Tolerance(kDtype));
    }
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(ChainConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
