// Group launches back to back: order between launches that may overlap, on one lane and on two, and
// the caches of records and work lists when they wrap and when compilers take turns.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/group/group_operand.h"
#include "tests/gpu/group_run.h"
#include "tests/support/seed.h"

namespace concert::tests {
namespace {

using daemon::TimelineWrite;
using kernels::GroupCompiler;
using policies::Form;

constexpr int kLaunches = 300;

class GpuGroupStressTest : public GpuGroupTestBase {
 protected:
  // Launches that may be unfinished at a time, less than GroupLauncher::kMaxUnfinished on all lanes
  // together.
  static constexpr size_t kWindow = 24;

  // Waits until fewer than `window` launches are unfinished, then takes one more.
  void Throttle(std::deque<std::vector<TimelineWrite>>& unfinished,
                const std::vector<TimelineWrite>& writes, size_t window = kWindow) {
    while (unfinished.size() >= window) {
      for (const TimelineWrite& write : unfinished.front()) {
        ASSERT_TRUE(WaitFor(IndexOf(write), write.value)) << device().healthy();
      }
      unfinished.pop_front();
    }
    unfinished.push_back(writes);
  }
  int IndexOf(const TimelineWrite& write) const {
    return static_cast<int>((write.address - TimelineAddress(0)) / 64);
  }

  std::mt19937 random_{Seed()};
};

// Launches that follow from nothing unfinished. A group comes again when it is done, so up to as
// many as there are groups run or wait.
TEST_F(GpuGroupStressTest, IndependentLaunches) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  constexpr size_t kGroups = 5;
  std::array<GroupRuns, kGroups> groups;
  std::array<std::vector<const Op*>, kGroups> ops;
  for (size_t g = 0; g < kGroups; ++g) {
    for (size_t i = 0; i < 3 + 4 * g; ++i) {
      const GemmCase shape = {.m = 1 + static_cast<uint32_t>(random_() % 150),
                              .n = 1 + static_cast<uint32_t>(random_() % 300),
                              .k = 8 + static_cast<uint32_t>(random_() % 500),
                              .aligned_rows = true};
      groups[g].emplace_back(device(), shape, Dtype::kBf16, Activation::kNone, random_);
    }
    ops[g] = OpsOf(groups[g]);
  }
  std::array<std::vector<TimelineWrite>, kGroups> writes;
  for (size_t g = 0; g < kGroups; ++g) {
    writes[g] = NextWrites(ops[g].size(), kFirstTimeline + static_cast<int>(g) * 32);
  }
  std::deque<std::vector<TimelineWrite>> unfinished;
  for (int i = 0; i < kLaunches; ++i) {
    const size_t g = static_cast<size_t>(i) % kGroups;
    Throttle(unfinished, writes[g], kGroups);
    if (HasFatalFailure()) return;
    ASSERT_OK(device().Launch({.planned = {.form = Form::kGroup,
                                           .lane = kLane,
                                           .work_list = Plan(ops[g], g == 2 ? 4 : 0)},
                               .ops = ops[g],
                               .writes = writes[g],
                               .inputs_ready = true,
                               .weights_ready = true}));
    for (TimelineWrite& write : writes[g]) ++write.value;
  }
  Finish(kLane);
  for (GroupRuns& runs : groups) CheckAll(runs);
  EXPECT_EQ(kernel_launches(), static_cast<uint64_t>(kLaunches));
}

// Queues of GEMMs, each of which multiplies the result of the one before in its queue by a weight.
// A queue's matrices take turns, so that the same operands come again and nothing is uploaded
// between launches.
class Queues {
 public:
  static constexpr uint32_t kCount = 6, kSide = 192, kSlots = 4;
  static constexpr std::array<uint32_t, kCount> kRows = {1, 16, 65, 130, 192, 33};
  static constexpr uint64_t kMatrixBytes = uint64_t{kSide} * kSide * 2;

  // `shift`: A and W begin one element later, and so lie at no multiple of 16 bytes.
  Queues(CudaDevice& device, uint32_t seed, bool shift)
      : shift_(shift ? 1 : 0), memory_(device, kMatrixBytes * kCount * (kSlots + 1)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (uint32_t queue = 0; queue < kCount; ++queue) {
      for (const uint32_t slot : {0u, kSlots}) {
        for (uint64_t at = 0; at < kMatrixBytes; at += 2) {
          ElementFromFloat(Dtype::kBf16, uniform(random),
                           &memory_.bytes()[OffsetOf(queue, slot) + at]);
        }
      }
    }
    memory_.Upload();
  }

  // The `step`-th GEMM of the queue, counted from 0.
  Op OpOf(uint32_t queue, uint64_t step) const {
    Op op;
    op.kind = CONCERT_OP_GEMM;
    GemmArgs& g = op.gemm;
    g.m = kRows[queue], g.n = kSide, g.k = kSide - shift_, g.batch = 1;
    g.a = AddressOf(queue, step % kSlots) + 2 * shift_;
    g.w = AddressOf(queue, kSlots) + 2 * shift_;
    g.d = AddressOf(queue, (step + 1) % kSlots);
    g.lda = g.ldw = g.ldd = kSide;
    g.alpha = 0.125f;  // 1 / sqrt(kSide / 3): results are about as large as inputs
    g.dtype = g.d_dtype = Dtype::kBf16;
    op.work = {.runs_on = policies::RunsOn::kSms,
               .carrier = policies::Carrier::kGroup,
               .repack_bytes = *kernels::GroupRepackBytes(g),
               .m = g.m,
               .n = g.n,
               .k = g.k,
               .batch = 1};
    return op;
  }
  // Every result that is still there, and all between them.
  const std::vector<uint8_t>& Fetch() {
    memory_.Download();
    return memory_.bytes();
  }
  // Of what was fetched.
  bool AllFinite() {
    for (uint32_t queue = 0; queue < kCount; ++queue) {
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        for (uint64_t i = 0; i < uint64_t{kRows[queue]} * kSide; ++i) {
          const uint8_t* element = &memory_.bytes()[OffsetOf(queue, slot) + i * 2];
          if (!std::isfinite(ElementToDouble(Dtype::kBf16, element))) return false;
        }
      }
    }
    return true;
  }

 private:
  static uint64_t OffsetOf(uint64_t queue, uint64_t slot) {
    return (queue * (kSlots + 1) + slot) * kMatrixBytes;
  }
  Address AddressOf(uint64_t queue, uint64_t slot) const {
    return memory_.address() + OffsetOf(queue, slot);
  }

  const uint32_t shift_;  // elements
  HostMirror memory_;
};

// One launch of a chain: the next GEMM of each of these queues.
struct Step {
  std::vector<uint32_t> queues;
  int budget = 0;
  bool group = true;
};

// The queues of one lane and how far they are.
struct Chain {
  Chain(CudaDevice& device, policies::Lane on, bool shift)
      : lane(on), queues(device, Seed() + on, shift) {}

  const policies::Lane lane;
  Queues queues;
  std::array<uint64_t, Queues::kCount> steps{};            // issued so far
  std::array<TimelineWrite, Queues::kCount> last_write{};  // of each queue
  // Queues of the last launches, the latest first.
  std::deque<std::vector<uint32_t>> previous;
};

class GpuGroupChainStressTest : public GpuGroupStressTest {
 protected:
  static kernels::Predecessor PredecessorOf(const Chain& chain, uint32_t queue) {
    for (size_t back = 0; back < chain.previous.size(); ++back) {
      const std::vector<uint32_t>& queues = chain.previous[back];
      const auto at = std::find(queues.begin(), queues.end(), queue);
      if (at == queues.end()) continue;
      return {.launches_back = static_cast<uint16_t>(back + 1),
              .op = static_cast<uint16_t>(at - queues.begin())};
    }
    return {};
  }

  // Launches the next GEMMs as the dispatcher does, naming for each the one before it in its queue.
  // With `early`, a launch may start before the one before has ended.
  void Issue(Chain& chain, const Step& step, bool early, int first_timeline,
             std::deque<std::vector<TimelineWrite>>& unfinished, int turn) {
    std::vector<Op> made;
    std::vector<const Op*> ops;
    std::vector<TimelineWrite> writes;
    std::vector<kernels::Predecessor> after;
    bool inputs_ready = early;
    made.reserve(step.queues.size());
    for (const uint32_t queue : step.queues) {
      ops.push_back(&made.emplace_back(chain.queues.OpOf(queue, chain.steps[queue])));
      const int timeline = first_timeline + static_cast<int>(queue);
      TimelineWrite& write = chain.last_write[queue];
      after.push_back(PredecessorOf(chain, queue));
      const bool follows = after.back().launches_back > 0;
      if (chain.steps[queue]++ == 0) write = {TimelineAddress(timeline), Timeline(timeline)};
      inputs_ready = inputs_ready && (follows || Timeline(timeline) >= write.value);
      ++write.value;
      writes.push_back(write);
    }
    Throttle(unfinished, writes);
    if (HasFatalFailure()) return;
    daemon::LaunchRequest request = {
        .planned = {.lane = chain.lane, .sm_budget = step.budget}, .ops = ops, .writes = writes};
    if (step.group) {
      request.planned.form = Form::kGroup;
      // Every other launch as one behind another, whose blocks may take half of an SM.
      request.planned.work_list =
          Plan(ops, step.budget, turn % 2 == 0 ? GroupGoal::kLatency : GroupGoal::kThroughput);
      // Looked at only where inputs are ready.
      if (early) request.after = after;
      request.inputs_ready = inputs_ready;
      request.weights_ready = early && turn % 5 != 0;
    }
    ASSERT_OK(device().Launch(request));
    chain.previous.push_front(step.queues);
    if (chain.previous.size() > kernels::kMaxGroupPredecessors) chain.previous.pop_back();
    early_ += inputs_ready && step.group;
  }

  // Runs the steps on each of `lanes` at once and returns what the lanes' queues hold at the end.
  std::vector<std::vector<uint8_t>> Run(const std::vector<Step>& steps,
                                        std::span<const policies::Lane> lanes, bool early) {
    std::deque<Chain> chains;
    for (const policies::Lane lane : lanes) chains.emplace_back(device(), lane, shift_);
    std::deque<std::vector<TimelineWrite>> unfinished;
    for (size_t i = 0; i < steps.size() && !HasFatalFailure(); ++i) {
      for (size_t c = 0; c < chains.size() && !HasFatalFailure(); ++c) {
        Issue(chains[c], steps[i], early, kFirstTimeline + static_cast<int>(c * Queues::kCount),
              unfinished, static_cast<int>(i));
      }
    }
    std::vector<std::vector<uint8_t>> results;
    for (Chain& chain : chains) {
      Finish(chain.lane);
      results.push_back(chain.queues.Fetch());
      EXPECT_TRUE(chain.queues.AllFinite()) << "lane " << int{chain.lane};
    }
    return results;
  }

  // Overlapping launches give the bits that launches one after the other give.
  void CompareWithOneByOne(const std::vector<Step>& steps, std::span<const policies::Lane> lanes) {
    SCOPED_TRACE("seed " + std::to_string(Seed()));
    const auto one_by_one = Run(steps, lanes, /*early=*/false);
    if (HasFatalFailure()) return;
    early_ = 0;
    const auto overlapping = Run(steps, lanes, /*early=*/true);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < lanes.size(); ++i) {
      EXPECT_TRUE(one_by_one[i] == overlapping[i]) << "lane " << int{lanes[i]};
    }
    EXPECT_GT(early_, 0) << "no launch could start early";
    const auto groups = std::count_if(steps.begin(), steps.end(), [](auto& s) { return s.group; });
    EXPECT_EQ(kernel_launches(), 2 * lanes.size() * static_cast<uint64_t>(groups));
  }

  // All queues, their order another one in each of three launches.
  static std::vector<Step> AllQueues() {
    std::vector<Step> steps(kLaunches);
    for (size_t i = 0; i < steps.size(); ++i) {
      for (uint32_t q = 0; q < Queues::kCount; ++q) {
        steps[i].queues.push_back((q + static_cast<uint32_t>(i) % 3 * 2) % Queues::kCount);
      }
    }
    return steps;
  }

  bool shift_ = false;  // of Queues
  int early_ = 0;       // launches that were allowed to start early
};

TEST_F(GpuGroupChainStressTest, EachProblemFollowsOneOfTheLaunchBefore) {
  CompareWithOneByOne(AllQueues(), std::span(policies::kGroupLanes).first(1));
}

// Some queues in each launch, so that what a problem follows is up to some launches back, and
// sometimes further than a device remembers.
TEST_F(GpuGroupChainStressTest, ProblemsFollowThoseOfSeveralLaunches) {
  std::vector<Step> steps(kLaunches);
  for (Step& step : steps) {
    while (step.queues.empty()) {
      for (uint32_t queue = 0; queue < Queues::kCount; ++queue) {
        if (random_() % 3 == 0) step.queues.push_back(queue);
      }
    }
  }
  CompareWithOneByOne(steps, std::span(policies::kGroupLanes).first(1));
}

// What follows a launch of another kind must wait for all of it, though `after` names a problem.
TEST_F(GpuGroupChainStressTest, LibraryLaunchesInBetween) {
  std::vector<Step> steps = AllQueues();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i % 7 == 3)
      steps[i] = {.queues = {static_cast<uint32_t>(i) % Queues::kCount}, .group = false};
    // All that this launch depends on is the library's.
    if (i % 14 == 4) steps[i].queues = steps[i - 1].queues;
  }
  CompareWithOneByOne(steps, std::span(policies::kGroupLanes).first(1));
}

// A long launch on few blocks beside short ones on many, and queues that come and go.
TEST_F(GpuGroupChainStressTest, LaunchesOfDifferentSizes) {
  std::vector<Step> steps = AllQueues();
  constexpr int kBudgets[] = {0, 1, 66, 3, 0, 131, 2};
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].budget = kBudgets[i % std::size(kBudgets)];
    steps[i].queues.resize(i % 4 == 3 ? 1 + i / 4 % 3 : Queues::kCount);
  }
  CompareWithOneByOne(steps, std::span(policies::kGroupLanes).first(1));
}

TEST_F(GpuGroupChainStressTest, AllLanesAtOnce) {
  std::vector<Step> steps = AllQueues();
  steps.resize(kLaunches / 2);
  for (size_t i = 0; i < steps.size(); ++i) steps[i].budget = i % 2 == 0 ? 0 : 40;
  CompareWithOneByOne(steps, policies::kGroupLanes);
}

// A and W of every problem are repacked, A from what the launch before has just written, in the
// scratch that it has just read.
TEST_F(GpuGroupChainStressTest, RepackedOperandsOnAllLanes) {
  shift_ = true;
  std::vector<Step> steps = AllQueues();
  steps.resize(kLaunches / 2);
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].budget = i % 2 == 0 ? 0 : 40;
    steps[i].queues.resize(i % 4 == 3 ? 2 : Queues::kCount);
  }
  CompareWithOneByOne(steps, policies::kGroupLanes);
}

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

// More problems of several tiles than there are SMs, on two lanes at once: blocks that watch over
// one leave it to the last block, and its timeline is written all the same.
TEST_F(GpuGroupStressTest, WatchedProblemsAreHandedOver) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  constexpr int kTurns = 20;
  std::array<GroupRuns, 2> groups;
  std::array<std::vector<TimelineWrite>, 2> writes;
  for (const size_t lane : {0, 1}) {
    for (int i = 0; i < kernels::kMaxGroupProblems; ++i) {
      const GemmCase shape = {.m = 16, .n = 512, .k = i % 64 == 0 ? 4096u : 64u};
      groups[lane].emplace_back(device(), shape, Dtype::kBf16, Activation::kNone, random_);
    }
    writes[lane] = NextWrites(groups[lane].size(),
                              kFirstTimeline + static_cast<int>(lane) * kernels::kMaxGroupProblems);
  }
  std::deque<std::vector<TimelineWrite>> unfinished;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const size_t lane : {0, 1}) {
      Throttle(unfinished, writes[lane], /*window=*/2);
      if (HasFatalFailure()) return;
      const std::vector<const Op*> ops = OpsOf(groups[lane]);
      ASSERT_OK(device().Launch({.planned = {.form = Form::kGroup,
                                             .lane = policies::kGroupLanes[lane],
                                             .work_list = Plan(ops)},
                                 .ops = ops,
                                 .writes = writes[lane]}));
      for (TimelineWrite& write : writes[lane]) ++write.value;
    }
  }
  for (const size_t lane : {0, 1}) {
    Finish(policies::kGroupLanes[lane]);
    for (const TimelineWrite& write : writes[lane]) {
      EXPECT_EQ(Timeline(IndexOf(write)), write.value - 1);
    }
    CheckAll(groups[lane]);
  }
}

// Each compiler's work lists lie in an arena of its own, at the same places.
TEST_F(GpuGroupStressTest, PlannersInTurn) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  std::array<std::unique_ptr<GroupCompiler>, 2> compilers;
  std::array<GroupRuns, 2> groups;
  std::array<std::vector<const Op*>, 2> ops;
  std::array<const GroupWorkList*, 2> work_lists;
  for (size_t g = 0; g < 2; ++g) {
    compilers[g] = std::make_unique<GroupCompiler>(device().info().model);
    for (uint32_t i = 0; i < 6 + 5 * g; ++i) {
      const GemmCase shape = {
          .m = 20 + 30 * i, .n = 250 - 20 * i, .k = 64 + 40 * i, .aligned_rows = true};
      groups[g].emplace_back(device(), shape, Dtype::kBf16, Activation::kNone, random_);
    }
    ops[g] = OpsOf(groups[g]);
    work_lists[g] = compilers[g]->Compile(ProblemsOf(ops[g]), 0);
    ASSERT_NE(work_lists[g], nullptr);
  }
  std::array<std::vector<TimelineWrite>, 2> writes;
  for (size_t g = 0; g < 2; ++g) {
    writes[g] = NextWrites(ops[g].size(), kFirstTimeline + static_cast<int>(g) * 32);
  }
  std::deque<std::vector<TimelineWrite>> unfinished;
  for (int i = 0; i < kLaunches; ++i) {
    const auto g = static_cast<size_t>(i % 2);
    Throttle(unfinished, writes[g]);
    if (HasFatalFailure()) return;
    ASSERT_OK(device().Launch(
        {.planned = {.form = Form::kGroup, .lane = kLane, .work_list = work_lists[g]},
         .ops = ops[g],
         .writes = writes[g]}));
    for (TimelineWrite& write : writes[g]) ++write.value;
  }
  Finish(kLane);
  for (GroupRuns& runs : groups) CheckAll(runs);
  EXPECT_EQ(kernel_launches(), static_cast<uint64_t>(kLaunches));
}

}  // namespace
}  // namespace concert::tests
