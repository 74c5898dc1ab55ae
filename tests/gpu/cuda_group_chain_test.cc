// Order between group launches that may overlap, on one lane and on several: queues of GEMMs, whose
// results are compared with those of one launch at a time.
#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/group/group_operand.h"
#include "tests/gpu/group_stress.h"

namespace concert::test {
namespace {

using daemon::TimelineWrite;
using policies::Form;

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
    std::vector<Step> steps(kStressLaunches);
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
  std::vector<Step> steps(kStressLaunches);
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
  steps.resize(kStressLaunches / 2);
  for (size_t i = 0; i < steps.size(); ++i) steps[i].budget = i % 2 == 0 ? 0 : 40;
  CompareWithOneByOne(steps, policies::kGroupLanes);
}

// A and W of every problem are repacked, A from what the launch before has just written, in the
// scratch that it has just read.
TEST_F(GpuGroupChainStressTest, RepackedOperandsOnAllLanes) {
  shift_ = true;
  std::vector<Step> steps = AllQueues();
  steps.resize(kStressLaunches / 2);
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].budget = i % 2 == 0 ? 0 : 40;
    steps[i].queues.resize(i % 4 == 3 ? 2 : Queues::kCount);
  }
  CompareWithOneByOne(steps, policies::kGroupLanes);
}

}  // namespace
}  // namespace concert::test
