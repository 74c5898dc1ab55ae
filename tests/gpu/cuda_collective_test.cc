// Collectives of the cuda device against a double-precision reference: ranks on one GPU, and one
// per GPU.
#include <array>
#include <cstring>
#include <string>

#include "kernels/comm/collective_op.h"
#include "kernels/comm/peer_args.h"
#include "proto/ring/messages.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

using kernels::Reduction;

struct CollectiveCase {
  uint16_t kind = 0;
  Dtype dtype = Dtype::kBf16;
  Reduction reduction = Reduction::kSum;
  uint64_t count = 0;
  uint64_t offset = 0;  // elements between aligned memory and each operand
  bool in_place = false;
  bool two_lanes = false;
  policies::TransportChoice choice = {};

  bool reduces() const {
    return kind == CONCERT_OP_ALL_REDUCE || kind == CONCERT_OP_REDUCE_SCATTER;
  }
  bool big_src() const {
    return kind == CONCERT_OP_REDUCE_SCATTER || kind == CONCERT_OP_ALL_TO_ALL;
  }
  bool big_dst() const { return kind == CONCERT_OP_ALL_GATHER || kind == CONCERT_OP_ALL_TO_ALL; }
  std::string ToString(size_t ranks) const {
    return std::string(concert_op_kind_name(kind)) + ", " + std::to_string(ranks) +
           " ranks, dtype " + concert_dtype_name(static_cast<uint64_t>(dtype)) + ", reduction " +
           std::to_string(static_cast<int>(reduction)) + ", count " + std::to_string(count) +
           ", offset " + std::to_string(offset) + (in_place ? ", in place" : "") + ", " +
           std::string(policies::kTransportNames[static_cast<size_t>(choice.transport)]) + " on " +
           std::to_string(choice.sms) + " SMs, seed " + std::to_string(Seed());
  }
};

class CollectiveTest : public GpuTest {
 protected:
  void Run(const CollectiveCase& test, const std::vector<int>& gpus) {
    SCOPED_TRACE(test.ToString(gpus.size()));
    const size_t ranks = gpus.size();
    const uint64_t element = DtypeBytes(test.dtype);
    const uint64_t src_count = test.count * (test.big_src() ? ranks : 1);
    const uint64_t dst_count = test.count * (test.big_dst() ? ranks : 1);
    std::vector<std::unique_ptr<HostMirror>> src, dst;
    std::vector<Op> ops(ranks);
    std::vector<daemon::RankPart> parts(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      src.push_back(
          std::make_unique<HostMirror>(device(gpus[rank]), (test.offset + src_count) * element));
      dst.push_back(
          std::make_unique<HostMirror>(device(gpus[rank]), (test.offset + dst_count) * element));
      src[rank]->FillRandom(test.dtype, test.offset * element, random_);
      kernels::CollectiveArgs& args = ops[rank].collective;
      ops[rank].kind = test.kind;
      args = {};
      args.root = test.kind == CONCERT_OP_BROADCAST ? static_cast<uint32_t>(ranks - 1) : 0;
      args.count = test.count;
      args.src = src[rank]->address() + test.offset * element;
      args.dst = test.in_place ? args.src : dst[rank]->address() + test.offset * element;
      args.src_bytes = src_count * element, args.dst_bytes = dst_count * element;
      args.dtype = test.dtype, args.reduction = test.reduction;
      parts[rank].gpu = gpus[rank];
      parts[rank].lane = test.two_lanes && rank % 2 == 1 ? policies::kHighCollectiveLane
                                                         : policies::kCollectiveLane;
      parts[rank].op = &ops[rank];
      parts[rank].signal = {TimelineAddress(static_cast<int>(rank)),
                            Timeline(static_cast<int>(rank)) + 1};
    }
    for (const Op& op : ops) {
      if (!kernels::TransportsOf(op, ranks, /*pool=*/true).Has(test.choice.transport)) return;
    }
    ++runs_;
    std::vector<std::vector<uint8_t>> inputs;  // in place, the result replaces its mirror
    for (const auto& mirror : src) inputs.push_back(mirror->bytes());
    ASSERT_OK(node().LaunchCollective(parts, test.choice));
    for (size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_TRUE(WaitFor(static_cast<int>(rank), parts[rank].signal.value))
          << device(gpus[rank]).healthy();
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      HostMirror& result = test.in_place ? *src[rank] : *dst[rank];
      result.Download();
      double error = 0, norm = 0;
      for (uint64_t i = 0; i < dst_count; ++i) {
        const Reduced expected = Expected(test, inputs, rank, i);
        const double got =
            ElementToDouble(test.dtype, &result.bytes()[(test.offset + i) * element]);
        error += (got - expected.value) * (got - expected.value);
        // NCCL rounds sums on their way from rank to rank, which may be larger than the last.
        const bool rounds_once = test.choice.transport != policies::Transport::kNccl;
        const double size = rounds_once ? expected.value : expected.addends;
        norm += size * size;
      }
      EXPECT_TRUE(std::sqrt(error) <= (test.reduces() ? 1e-2 : 0) * std::sqrt(norm))
          << "rank " << rank;
      HostMirror& first = test.in_place ? *src[0] : *dst[0];
      if (test.kind != CONCERT_OP_ALL_REDUCE ||
          test.choice.transport == policies::Transport::kNccl) {
        continue;
      }
      EXPECT_TRUE(std::equal(result.bytes().begin() + test.offset * element, result.bytes().end(),
                             first.bytes().begin() + test.offset * element))
          << "rank " << rank << " has other bits than rank 0";
    }
  }

  // An element of a result, and the absolute values of all that it is the sum of, added up.
  struct Reduced {
    double value, addends;
  };
  // Element `i` of rank `rank`'s result.
  static Reduced Expected(const CollectiveCase& test,
                          const std::vector<std::vector<uint8_t>>& inputs, size_t rank,
                          uint64_t i) {
    const size_t ranks = inputs.size();
    const auto at = [&](size_t from, uint64_t index) {
      return ElementToDouble(test.dtype,
                             &inputs[from][(test.offset + index) * DtypeBytes(test.dtype)]);
    };
    const auto moved = [&](size_t from, uint64_t index) {
      return Reduced{at(from, index), std::abs(at(from, index))};
    };
    switch (test.kind) {
      case CONCERT_OP_ALL_GATHER:
        return moved(i / test.count, i % test.count);
      case CONCERT_OP_ALL_TO_ALL:
        return moved(i / test.count, rank * test.count + i % test.count);
      case CONCERT_OP_BROADCAST:
        return moved(ranks - 1, i);
      default:
        break;
    }
    const uint64_t index = test.kind == CONCERT_OP_REDUCE_SCATTER ? rank * test.count + i : i;
    Reduced result = moved(0, index);
    for (size_t from = 1; from < ranks; ++from) {
      const double x = at(from, index);
      if (test.reduction == Reduction::kSum) {
        result = {result.value + x, result.addends + std::abs(x)};
      } else {
        const double chosen = test.reduction == Reduction::kMax ? std::max(result.value, x)
                                                                : std::min(result.value, x);
        result = {chosen, std::abs(chosen)};
      }
    }
    return result;
  }

  void RunAll(const std::vector<int>& gpus) {
    ASSERT_OK(node().Connect(gpus));
    for (const uint16_t kind :
         {CONCERT_OP_ALL_REDUCE, CONCERT_OP_ALL_GATHER, CONCERT_OP_REDUCE_SCATTER,
          CONCERT_OP_ALL_TO_ALL, CONCERT_OP_BROADCAST}) {
      for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
        for (const uint64_t count : {uint64_t{4096}, uint64_t{1}, uint64_t{1003}}) {
          CollectiveCase test = {
              .kind = kind, .dtype = dtype, .count = count, .two_lanes = count == 1003};
          Run(test, gpus);
          if (HasFatalFailure()) return;
        }
        Run({.kind = kind, .dtype = dtype, .count = 512, .offset = 1}, gpus);
        for (const Reduction reduction : {Reduction::kMax, Reduction::kMin}) {
          CollectiveCase test = {
              .kind = kind, .dtype = dtype, .reduction = reduction, .count = 520};
          if (test.reduces()) Run(test, gpus);
        }
      }
    }
    Run({.kind = CONCERT_OP_ALL_REDUCE, .count = 100000, .in_place = true}, gpus);
    Run({.kind = CONCERT_OP_BROADCAST, .count = 1001, .in_place = true}, gpus);
  }

  // Every kind by one transport: through inboxes, around their limit, in shares that are not equal.
  void RunAllBy(const policies::TransportChoice& choice, const std::vector<int>& gpus) {
    ASSERT_OK(node().Connect(gpus));
    for (const uint16_t kind :
         {CONCERT_OP_ALL_REDUCE, CONCERT_OP_ALL_GATHER, CONCERT_OP_REDUCE_SCATTER,
          CONCERT_OP_ALL_TO_ALL, CONCERT_OP_BROADCAST}) {
      for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
        const uint64_t limit = kernels::kInboxBytes / (gpus.size() - 1) / DtypeBytes(dtype);
        for (const uint64_t count : {uint64_t{1}, uint64_t{1003}, limit, limit + 8, limit + 1,
                                     uint64_t{524'296}, uint64_t{1'000'000}}) {
          CollectiveCase test = {.kind = kind, .dtype = dtype, .count = count, .choice = choice};
          test.two_lanes = count == 1003 || count == limit + 8;
          Run(test, gpus);
          if (HasFatalFailure()) return;
        }
        Run({.kind = kind, .dtype = dtype, .count = 512, .offset = 1, .choice = choice}, gpus);
        Run({.kind = kind, .dtype = dtype, .count = 60'000, .offset = 8, .choice = choice}, gpus);
      }
    }
    for (const Reduction reduction : {Reduction::kMax, Reduction::kMin}) {
      for (const uint64_t count : {uint64_t{520}, uint64_t{80'000}}) {
        for (const uint16_t kind : {CONCERT_OP_ALL_REDUCE, CONCERT_OP_REDUCE_SCATTER}) {
          Run({.kind = kind, .reduction = reduction, .count = count, .choice = choice}, gpus);
        }
      }
    }
    for (const uint64_t count : {uint64_t{1001}, uint64_t{200'000}}) {
      for (const uint16_t kind : {CONCERT_OP_ALL_REDUCE, CONCERT_OP_BROADCAST})
        Run({.kind = kind, .count = count, .in_place = true, .choice = choice}, gpus);
    }
    EXPECT_GT(runs_, 0);
  }

  std::mt19937 random_{Seed()};
  int runs_ = 0;
};

TEST_F(CollectiveTest, OneGpuOneRank) { RunAll({0}); }
TEST_F(CollectiveTest, OneGpuTwoRanks) { RunAll({0, 0}); }
TEST_F(CollectiveTest, OneGpuFourRanks) { RunAll({0, 0, 0, 0}); }

TEST_F(CollectiveTest, OneRankPerGpu) {
  if (node().gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  std::vector<int> gpus = AllGpus();
  RunAll(gpus);
  std::reverse(gpus.begin(), gpus.end());
  RunAll(gpus);
}

TEST_F(CollectiveTest, EveryTransport) {
  if (node().gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  using policies::Transport;
  const std::vector<int> gpus = AllGpus();
  for (const policies::TransportChoice& choice :
       std::vector<policies::TransportChoice>{{Transport::kCopyEngine, 0},
                                              {Transport::kCopyEngine, 8},
                                              {Transport::kPeer, 2},
                                              {Transport::kPeer, 12},
                                              {Transport::kHybrid, 3},
                                              {Transport::kHybrid, 8}}) {
    if (!device(0).info().model.transports.Has(choice.transport)) continue;
    RunAllBy(choice, gpus);
    if (HasFatalFailure()) return;
  }
}

// Many in flight, by transports and sizes in random order on two lanes: what one leaves in the
// exchange the next must not take for its own. Each lane has memory and timelines of its own.
TEST_F(CollectiveTest, TransportsFollowOneAnother) {
  if (node().gpu_count() < 2 || !device(0).info().model.transports.Has(policies::Transport::kPeer))
    GTEST_SKIP() << "needs two GPUs with peer kernels";
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  const std::vector<int> gpus = {0, 1};
  ASSERT_OK(node().Connect(gpus));
  constexpr uint64_t kCount = 100'000;
  constexpr policies::Lane kLanes[] = {policies::kCollectiveLane, policies::kHighCollectiveLane};
  const std::vector<float> ones(kCount, 1);
  std::vector<std::unique_ptr<HostMirror>> data;  // lane by lane, rank by rank
  std::vector<uint64_t> ends;
  for (int i = 0; i < 4; ++i) {
    data.push_back(std::make_unique<HostMirror>(device(gpus[i % 2]), kCount * sizeof(float)));
    std::memcpy(data[i]->bytes().data(), ones.data(), kCount * sizeof(float));
    data[i]->Upload();
    ends.push_back(uint64_t{Timeline(i)});
  }
  double expected[2] = {1, 1};
  std::array<Op, 2> ops;
  for (int round = 0; round < 400; ++round) {
    const size_t lane = random_() % 2;
    // Sums double all; a maximum of what both ranks have, of any part of it, changes nothing.
    const bool adds = random_() % 20 == 0;
    const bool small = !adds && random_() % 2 == 0;
    if (adds) expected[lane] *= 2;
    const uint64_t count = small ? 1 + random_() % 10'000 : kCount;
    const policies::TransportChoice choice = {.transport = small || random_() % 2 == 0
                                                               ? policies::Transport::kPeer
                                                               : policies::Transport::kHybrid,
                                              .sms = static_cast<uint16_t>(1 + random_() % 8)};
    std::vector<daemon::RankPart> parts;
    for (size_t rank = 0; rank < 2; ++rank) {
      const size_t i = 2 * lane + rank;
      ops[rank].kind = CONCERT_OP_ALL_REDUCE;
      ops[rank].collective = {};
      ops[rank].collective.count = count;
      ops[rank].collective.src = ops[rank].collective.dst = data[i]->address();
      ops[rank].collective.dtype = Dtype::kFp32;
      ops[rank].collective.reduction = adds ? Reduction::kSum : Reduction::kMax;
      parts.push_back({.gpu = gpus[rank],
                       .lane = kLanes[lane],
                       .op = &ops[rank],
                       .signal = {TimelineAddress(static_cast<int>(i)), ++ends[i]}});
    }
    ASSERT_OK(node().LaunchCollective(parts, choice));
  }
  for (size_t i = 0; i < data.size(); ++i) {
    ASSERT_TRUE(WaitFor(static_cast<int>(i), ends[i])) << device(gpus[i % 2]).healthy();
    data[i]->Download();
    std::vector<float> result(kCount);
    std::memcpy(result.data(), data[i]->bytes().data(), kCount * sizeof(float));
    ASSERT_EQ(result, std::vector<float>(kCount, static_cast<float>(expected[i / 2])));
  }
}

TEST_F(CollectiveTest, MixedListsAreRefused) {
  if (node().gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const int gpus[] = {0, 0, 1};
  EXPECT_EQ(node().Connect(gpus).code(), absl::StatusCode::kUnimplemented);
}

TEST_F(CollectiveTest, UnknownListsAreRefused) {
  const int missing[] = {0, node().gpu_count()};
  EXPECT_EQ(node().Connect(missing).code(), absl::StatusCode::kInvalidArgument);
  // Ranks on one GPU need no connection; all of the GPUs have one, by other tests.
  if (node().gpu_count() < 3) return;
  const int never_connected[] = {2, 0};
  Op op;
  op.kind = CONCERT_OP_BARRIER;
  std::vector<daemon::RankPart> parts(2);
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i] = {.gpu = never_connected[i], .op = &op, .signal = {}};
  EXPECT_EQ(node().LaunchCollective(parts, {}).code(), absl::StatusCode::kFailedPrecondition);
}

// A barrier on two lanes: neither rank's signal may come before both lanes' earlier work is done.
TEST_F(CollectiveTest, BarrierWaitsForEveryRank) {
  const std::vector<int> gpus =
      node().gpu_count() > 1 ? std::vector<int>{0, 1} : std::vector<int>{0, 0};
  ASSERT_OK(node().Connect(gpus));
  constexpr uint64_t kBytes = 512 << 20;
  HostMirror from(device(gpus[1]), kBytes, 0x11), to(device(gpus[1]), kBytes, 0);
  Op copy;
  copy.kind = CONCERT_OP_COPY;
  copy.copy = {from.address(), to.address(), kBytes};
  const Op* ops[] = {&copy};
  ASSERT_OK(device(gpus[1]).Launch({.ops = ops}));
  const daemon::TimelineWrite copied = {TimelineAddress(2), Timeline(2) + 1};
  ASSERT_OK(device(gpus[1]).Signal(0, {&copied, 1}));
  ASSERT_OK(device(gpus[1]).Order(policies::kHighCollectiveLane, 0));
  Op barrier;
  barrier.kind = CONCERT_OP_BARRIER;
  barrier.collective = {};
  std::vector<daemon::RankPart> parts(2);
  for (int rank = 0; rank < 2; ++rank) {
    parts[rank] = {.gpu = gpus[rank],
                   .lane = rank == 0 ? policies::kCollectiveLane : policies::kHighCollectiveLane,
                   .op = &barrier,
                   .signal = {TimelineAddress(rank), Timeline(rank) + 1}};
  }
  ASSERT_OK(node().LaunchCollective(parts, {}));
  ASSERT_TRUE(WaitFor(0, parts[0].signal.value));
  EXPECT_GE(Timeline(2), copied.value) << "rank 0 passed the barrier before rank 1's work was done";
  ASSERT_TRUE(WaitFor(1, parts[1].signal.value));
}

}  // namespace
}  // namespace concert::test
