// Group launches of every backend: problems of mixed shapes, their reference, and chains of
// launches. What the scenarios launch has no work list unless a subclass makes one.
#ifndef CONCERT_TESTS_CONFORMANCE_GROUP_FIXTURE_H_
#define CONCERT_TESTS_CONFORMANCE_GROUP_FIXTURE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "tests/conformance/device_fixture.h"
#include "tests/support/seed.h"

namespace concert::daemon::conformance {

struct GroupCase {
  uint32_t m, n, k;
  uint32_t padding = 0;  // of every row, elements
  float alpha = 1, beta = 0;
  bool bias = false;
  bool in_place = false;  // C is D
  uint8_t activation = CONCERT_ABI_ACT_NONE;
  bool row_scales = false;  // A has one per row
};

// Decode and prefill shapes, tile edges, and K that is no multiple of any block; rows of D are
// multiples of 16 bytes, those of A and W all but one's.
inline const std::vector<GroupCase> kMixedShapes = {
    {.m = 1, .n = 256, .k = 512},  {.m = 8, .n = 128, .k = 64},   {.m = 65, .n = 200, .k = 136},
    {.m = 130, .n = 72, .k = 264}, {.m = 33, .n = 136, .k = 128}, {.m = 16, .n = 64, .k = 1000},
    {.m = 40, .n = 72, .k = 479}};

inline const std::vector<GroupCase> kEpilogues = {
    {.m = 17, .n = 96, .k = 64, .alpha = 0.5f, .bias = true, .activation = CONCERT_ABI_ACT_SILU},
    {.m = 40, .n = 136, .k = 80, .alpha = -1.5f, .beta = 0.75f},
    {.m = 70, .n = 64, .k = 72, .beta = 1, .bias = true, .in_place = true},
    {.m = 32, .n = 48, .k = 64, .padding = 8, .bias = true, .activation = CONCERT_ABI_ACT_GELU},
    {.m = 9, .n = 128, .k = 64, .activation = CONCERT_ABI_ACT_RELU},
    {.m = 75, .n = 72, .k = 64, .row_scales = true},
    {.m = 33,
     .n = 136,
     .k = 80,
     .alpha = 0.5f,
     .beta = 2,
     .bias = true,
     .activation = CONCERT_ABI_ACT_SILU,
     .row_scales = true}};

class GroupConformanceTest : public DeviceTest {
 protected:
  struct Problem {
    GroupCase shape;
    std::vector<double> a, w, c, bias, scales;
    uint32_t d_buffer = 0;
    Op op;
  };
  struct LaunchFlags {
    int budget = 0;
    bool inputs_ready = false, weights_ready = false;
  };

  // The work list of a launch; null: none.
  virtual const kernels::GroupWorkList* ScheduleOf(std::span<const Op* const> /*ops*/,
                                                   int /*budget*/) {
    return nullptr;
  }

  // Operands in buffers of their own, D poisoned, through admission.
  Problem MakeProblem(const GroupCase& shape, Dtype dtype, uint64_t seed) {
    Problem problem{.shape = shape};
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_GEMM;
    concert_gemm_body& body = descriptor.body.gemm;
    body.m = shape.m, body.n = shape.n, body.k = shape.k, body.batch = 1;
    body.lda = body.ldw = shape.k + shape.padding;
    body.ldc = body.ldd = shape.n + shape.padding;
    body.alpha = shape.alpha, body.beta = shape.beta;
    body.dtype = static_cast<uint8_t>(dtype);
    body.activation = shape.activation;
    problem.a = RandomNumbers(dtype, body.lda * shape.m, seed);
    problem.w = RandomNumbers(dtype, body.ldw * shape.n, seed + 1);
    problem.c = RandomNumbers(dtype, body.ldc * shape.m, seed + 2);
    problem.bias = RandomNumbers(dtype, shape.n, seed + 3);
    body.a.buffer = NewBuffer(Encode(dtype, problem.a));
    body.w.buffer = NewBuffer(Encode(dtype, problem.w));
    body.d.buffer = shape.in_place ? NewBuffer(Encode(dtype, problem.c))
                                   : NewPoisoned(body.ldd * shape.m * DtypeBytes(dtype));
    if (shape.beta != 0) {
      body.c.buffer = shape.in_place ? body.d.buffer : NewBuffer(Encode(dtype, problem.c));
    }
    if (shape.bias) body.bias.buffer = NewBuffer(Encode(dtype, problem.bias));
    problem.scales.assign(shape.m, 1);
    if (shape.row_scales) {
      problem.scales = RandomNumbers(Dtype::kFp32, shape.m, seed + 4);
      body.a.scales = NewBuffer(Encode(Dtype::kFp32, problem.scales));
      body.flags = CONCERT_GEMM_A_SCALES_PER_ROW;
    }
    problem.d_buffer = body.d.buffer;
    problem.op = Admit(descriptor);
    return problem;
  }

  std::vector<Problem> MakeProblems(std::span<const GroupCase> shapes, Dtype dtype) {
    std::vector<Problem> problems;
    for (const GroupCase& shape : shapes) {
      problems.push_back(MakeProblem(shape, dtype, 100 * (problems.size() + 1)));
    }
    return problems;
  }

  // One group launch; Word(i) becomes `value` when ops[i] is done.
  void LaunchGroup(Lane lane, std::span<const Op* const> ops, uint64_t value,
                   const LaunchFlags& flags) {
    std::vector<TimelineWrite> writes;
    for (size_t i = 0; i < ops.size(); ++i) {
      writes.push_back({WordAddress(static_cast<int>(i)), value});
    }
    const absl::Status status =
        gpu().Launch({.planned = {.form = policies::Form::kGroup,
                                  .lane = lane,
                                  .sm_budget = flags.budget,
                                  .degree = policies::DegreeOf(static_cast<int>(ops.size())),
                                  .work_list = ScheduleOf(ops, flags.budget)},
                      .ops = ops,
                      .writes = writes,
                      .inputs_ready = flags.inputs_ready,
                      .weights_ready = flags.weights_ready});
    ASSERT_TRUE(status.ok()) << status;
  }
  void RunGroup(Lane lane, const std::vector<Problem>& problems, int budget = 0) {
    std::vector<const Op*> ops;
    for (const Problem& problem : problems) ops.push_back(&problem.op);
    const uint64_t value = ++launches_;
    LaunchGroup(lane, ops, value, {.budget = budget, .inputs_ready = true, .weights_ready = true});
    for (size_t i = 0; i < ops.size(); ++i) WaitFor(static_cast<int>(i), value);
  }

  // D is right, and what lies between its rows is untouched.
  void CheckD(const Problem& problem) {
    const GroupCase& shape = problem.shape;
    const kernels::GemmArgs& gemm = problem.op.gemm;
    const uint32_t element = DtypeBytes(gemm.dtype);
    const std::vector<double> d =
        Decode(gemm.dtype, Read(problem.d_buffer, gemm.ldd * gemm.m * element));
    std::vector<double> got, want;
    for (uint64_t i = 0; i < gemm.m; ++i) {
      for (uint64_t j = 0; j < gemm.ldd; ++j) {
        const uint64_t at = i * gemm.ldd + j;
        if (j >= gemm.n) {
          ASSERT_TRUE(std::isnan(d[at])) << "the gap at " << at << " was written";
          continue;
        }
        double sum = 0;
        for (uint64_t p = 0; p < gemm.k; ++p) {
          sum += problem.a[i * gemm.lda + p] * problem.w[j * gemm.ldw + p];
        }
        sum *= shape.alpha * problem.scales[i];
        if (shape.beta != 0) sum += shape.beta * problem.c[at];
        if (shape.bias) sum += problem.bias[j];
        got.push_back(d[at]);
        want.push_back(Activate(shape.activation, sum));
      }
    }
    EXPECT_LE(RelativeError(got, want), Tolerance(gemm.dtype));
  }
  void CheckAll(const std::vector<Problem>& problems) {
    for (size_t i = 0; i < problems.size(); ++i) {
      SCOPED_TRACE("problem " + std::to_string(i));
      CheckD(problems[i]);
    }
  }

  // --- Scenarios ---

  void RunShapes(std::span<const GroupCase> shapes, int budget = 0) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
      SCOPED_TRACE("dtype " + std::to_string(static_cast<int>(dtype)));
      const std::vector<Problem> problems = MakeProblems(shapes, dtype);
      RunGroup(policies::kGroupLanes[0], problems, budget);
      CheckAll(problems);
    }
  }

  // D of each problem of the first launch is A of one of the second, with nothing in between.
  void RunDependentLaunches(bool weights_ready) {
    const std::vector<GroupCase> shapes(4, {.m = 24, .n = 64, .k = 64, .alpha = 0.25f});
    const std::vector<Problem> first = MakeProblems(shapes, Dtype::kBf16);
    std::vector<Problem> second = MakeProblems(shapes, Dtype::kBf16);
    std::vector<const Op*> first_ops, second_ops;
    for (size_t i = 0; i < shapes.size(); ++i) {
      second[i].op.gemm.a = first[i].op.gemm.d;
      first_ops.push_back(&first[i].op);
      second_ops.push_back(&second[i].op);
    }
    LaunchGroup(policies::kGroupLanes[1], first_ops, ++launches_,
                {.inputs_ready = true, .weights_ready = true});
    LaunchGroup(policies::kGroupLanes[1], second_ops, ++launches_,
                {.weights_ready = weights_ready});
    for (size_t i = 0; i < shapes.size(); ++i) WaitFor(static_cast<int>(i), launches_);
    for (size_t i = 0; i < shapes.size(); ++i) {
      second[i].a = Decode(Dtype::kBf16, Read(first[i].d_buffer, 24 * 64 * 2));
    }
    CheckAll(first);
    CheckAll(second);
  }

  // Launches of a random walk over square matrices: each op multiplies one that an earlier launch
  // may have made by a weight, or a weight by it. Never two that were made: their size would grow
  // or shrink without bound.
  static constexpr uint32_t kSide = 64, kMatrices = 10, kWeights = 3, kMaxOps = 5;
  static constexpr uint64_t kMatrixBytes = uint64_t{kSide} * kSide * 2;
  struct ChainOp {
    uint32_t a, w, d, rows;
  };
  struct ChainLaunch {
    std::vector<ChainOp> ops;
    bool weights_ready;  // no op multiplies by what a launch makes
  };

  static std::vector<ChainLaunch> RandomChain(int launches, uint32_t seed) {
    std::mt19937 random(test::Seed() + seed);
    const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    std::vector<ChainLaunch> chain(static_cast<size_t>(launches));
    for (ChainLaunch& launch : chain) {
      // Outputs come from the first matrices of a random order, all that is read from the rest.
      std::vector<uint32_t> order(kMatrices);
      for (uint32_t i = 0; i < kMatrices; ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      launch.weights_ready = pick(3) != 0;
      const uint32_t count = 1 + pick(kMaxOps);
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t made = order[count + pick(kMatrices - count)];
        const uint32_t weight = kMatrices + pick(kWeights);
        const bool multiplies_made = launch.weights_ready || pick(2) == 0;
        launch.ops.push_back({.a = multiplies_made ? made : weight,
                              .w = multiplies_made ? weight : made,
                              .d = order[i],
                              .rows = 1 + pick(kSide)});
      }
    }
    return chain;
  }

  // Runs the chain on one lane; `wait` after each launch, or only at the end. Returns all matrices.
  Bytes RunChain(const std::vector<ChainLaunch>& chain, bool wait) {
    const uint64_t bytes = (kMatrices + kWeights) * kMatrixBytes;
    const uint32_t buffer =
        NewBuffer(Encode(Dtype::kBf16, RandomNumbers(Dtype::kBf16, bytes / 2, 77)));
    const uint64_t base = launches_;
    std::vector<Op> ops(kMaxOps);
    std::vector<const Op*> pointers;
    for (const ChainLaunch& launch : chain) {
      pointers.clear();
      for (size_t i = 0; i < launch.ops.size(); ++i) {
        ops[i] = ChainGemm(buffer, launch.ops[i]);
        pointers.push_back(&ops[i]);
      }
      LaunchGroup(policies::kGroupLanes[0], pointers, ++launches_,
                  {.budget = 16,
                   .inputs_ready = wait || launches_ == base + 1,
                   .weights_ready = launch.weights_ready});
      if (!wait) continue;
      for (size_t i = 0; i < pointers.size(); ++i) WaitFor(static_cast<int>(i), launches_);
    }
    Signal(policies::kGroupLanes[0], kMaxOps, launches_);
    WaitFor(kMaxOps, launches_);
    return Read(buffer, bytes);
  }

  Op ChainGemm(uint32_t buffer, const ChainOp& op) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_GEMM;
    concert_gemm_body& body = descriptor.body.gemm;
    body.m = op.rows, body.n = body.k = kSide, body.batch = 1;
    body.lda = body.ldw = body.ldd = kSide;
    // A factor of 0.72 for what is random and 1.44 at most, which keeps 200 products in range.
    body.alpha = 0.09f;
    body.dtype = CONCERT_ABI_BF16;
    body.a = {buffer, 0, op.a * kMatrixBytes};
    body.w = {buffer, 0, op.w * kMatrixBytes};
    body.d = {buffer, 0, op.d * kMatrixBytes};
    return Admit(descriptor);
  }

  // Back to back and one by one give the same bits.
  void CompareChains(int launches, uint32_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<ChainLaunch> chain = RandomChain(launches, seed);
    const Bytes one_by_one = RunChain(chain, true);
    const Bytes back_to_back = RunChain(chain, false);
    EXPECT_TRUE(one_by_one == back_to_back);
    for (const double value : Decode(Dtype::kBf16, one_by_one)) ASSERT_TRUE(std::isfinite(value));
  }

  uint64_t launches_ = 0;
};

}  // namespace concert::daemon::conformance

#endif  // CONCERT_TESTS_CONFORMANCE_GROUP_FIXTURE_H_
