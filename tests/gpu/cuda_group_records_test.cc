// The log of operands that group launches refer to, when it wraps.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tests/gpu/group_stress.h"

namespace concert::test {
namespace {

using daemon::TimelineWrite;
using policies::Form;

// One row each, with D at a place of its own.
class GpuGroupRecordStressTest : public GpuGroupStressTest {
 protected:
  // Launches and inputs do not fit into the log as wholes, so that no two records are alike.
  static constexpr uint32_t kInputs = 61, kDepth = 64, kColumns = 8;
  static constexpr uint32_t kPerLaunch = kernels::kMaxGroupProblems - 7;
  static constexpr uint32_t kLogLaunches =
      kernels::cuda::GroupRecords::kRecords / kPerLaunch + 3;  // a little more than the log holds

  void FillInputs(HostMirror& inputs) { inputs.FillRandom(Dtype::kBf16, 0, random_); }

  // Row i % kInputs of A times W, into the i-th place of D.
  static Op OpAt(const HostMirror& inputs, const HostMirror& d, uint32_t i) {
    Op op;
    op.kind = CONCERT_OP_GEMM;
    GemmArgs& g = op.gemm;
    g.m = 1, g.n = kColumns, g.k = kDepth, g.batch = 1;
    g.w = inputs.address();
    g.a = inputs.address() + uint64_t{kColumns + i % kInputs} * kDepth * 2;
    g.d = d.address() + uint64_t{i} * kColumns * 2;
    g.lda = g.ldw = kDepth, g.ldd = kColumns;
    g.alpha = 1;
    g.dtype = g.d_dtype = Dtype::kBf16;
    op.work = {.runs_on = policies::RunsOn::kSms,
               .carrier = policies::Carrier::kGroup,
               .m = 1,
               .n = kColumns,
               .k = kDepth,
               .batch = 1};
    return op;
  }

  // Every place of D has what its row gives.
  static void CheckPlaces(HostMirror& inputs, HostMirror& d) {
    d.Download();
    std::vector<double> expected(kInputs * kColumns);
    const auto input = [&](uint64_t row, uint64_t k) {
      return ElementToDouble(Dtype::kBf16, &inputs.bytes()[(row * kDepth + k) * 2]);
    };
    for (uint32_t i = 0; i < expected.size(); ++i) {
      for (uint32_t k = 0; k < kDepth; ++k) {
        expected[i] += input(kColumns + i / kColumns, k) * input(i % kColumns, k);
      }
    }
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < d.bytes().size() / 2; ++i) {
      const double want = expected[i % expected.size()];
      const double got = ElementToDouble(Dtype::kBf16, &d.bytes()[i * 2]);
      wrong += !(std::fabs(got - want) <= kTolerance * (1 + std::fabs(want)));
    }
    EXPECT_EQ(wrong, 0u) << "elements of " << d.bytes().size() / 2;
  }

  static void Poison(HostMirror& d) {
    std::fill(d.bytes().begin(), d.bytes().end(), 0xff);
    d.Upload();
  }
};

TEST_F(GpuGroupRecordStressTest, MoreOperandsThanAreRemembered) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  HostMirror inputs(device(), (kColumns + kInputs) * kDepth * 2);
  FillInputs(inputs);
  HostMirror d(device(), uint64_t{kLogLaunches} * kPerLaunch * kColumns * 2);
  std::array<std::vector<TimelineWrite>, 2> writes;
  for (size_t lane : {0, 1}) {
    writes[lane] = NextWrites(kPerLaunch, kFirstTimeline + static_cast<int>(lane * kPerLaunch));
  }
  // On each timeline, a value follows the one of the launch before on the lane.
  std::vector<kernels::Predecessor> after(kPerLaunch);
  for (size_t i = 0; i < after.size(); ++i) {
    after[i] = {.launches_back = 1, .op = static_cast<uint16_t>(i)};
  }
  std::deque<std::vector<TimelineWrite>> unfinished;
  for (int pass = 0; pass < 3; ++pass) {
    SCOPED_TRACE("pass " + std::to_string(pass));
    Poison(d);
    for (uint32_t launch = 0; launch < kLogLaunches; ++launch) {
      // Backwards in the second pass: what is newest in the log comes first, and is still known.
      const uint32_t at = pass == 1 ? kLogLaunches - 1 - launch : launch;
      std::vector<Op> made;
      std::vector<const Op*> ops;
      made.reserve(kPerLaunch);
      for (uint32_t i = 0; i < kPerLaunch; ++i) {
        ops.push_back(&made.emplace_back(OpAt(inputs, d, at * kPerLaunch + i)));
      }
      // Two lanes in turn, so that records are replaced which the other may be using.
      const size_t lane = launch % 2;
      Throttle(unfinished, writes[lane]);
      if (HasFatalFailure()) return;
      const std::span follows = launch < 2 ? std::span<kernels::Predecessor>() : std::span(after);
      ASSERT_OK(device().Launch({.planned = {.form = Form::kGroup,
                                             .lane = policies::kGroupLanes[lane],
                                             .work_list = Plan(ops)},
                                 .ops = ops,
                                 .writes = writes[lane],
                                 .after = follows,
                                 .inputs_ready = true,
                                 .weights_ready = true}));
      for (TimelineWrite& write : writes[lane]) ++write.value;
    }
    for (const size_t lane : {0, 1}) Finish(policies::kGroupLanes[lane]);
    CheckPlaces(inputs, d);
  }
  EXPECT_EQ(kernel_launches(), 3u * kLogLaunches);
}

}  // namespace
}  // namespace concert::test
