// Collectives by copies on a driver that runs nothing: what is copied by whom, and who waits for
// whom.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernels/comm/peer_args.h"
#include "kernels/comm/transports.h"
#include "proto/ring/ring_abi.h"

namespace concert::test {
namespace {

using kernels::Address;
using kernels::Op;
using kernels::cuda::CollectiveContext;
using kernels::cuda::CollectiveRank;
using kernels::cuda::PeerArgs;

constexpr uint64_t kCount = 1 << 19;  // of bf16
constexpr uint64_t kMessage = 2 * kCount;

template <typename Handle>
Handle HandleOf(uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}

// Work is named by what it writes, and what it reads.
using Work = std::pair<Address, Address>;
using Works = std::set<Work>;

struct FakeStreams {
  std::map<CUstream, Works> done;  // when the stream comes to what is enqueued next
  std::map<CUevent, Works> recorded;
  std::map<Work, Works> before;  // what each work waits for
  std::map<Work, CUstream> stream_of;
  std::map<Address, Address> contents;  // what lies there, by where it lay at first

  std::vector<Work> by_driver, by_blocks;  // by whom work is done
  unsigned blocks = 0;

  void Enqueue(CUstream stream, const Work& work) {
    before[work] = done[stream];
    stream_of[work] = stream;
    done[stream].insert(work);
    const auto there = contents.find(work.second);
    contents[work.first] = there == contents.end() ? work.second : there->second;
  }
};
FakeStreams* g_streams = nullptr;

CUresult SetContext(CUcontext) { return CUDA_SUCCESS; }
CUresult Record(CUevent event, CUstream stream) {
  g_streams->recorded[event] = g_streams->done[stream];
  return CUDA_SUCCESS;
}
CUresult Wait(CUstream stream, CUevent event, unsigned) {
  const Works& works = g_streams->recorded[event];
  g_streams->done[stream].insert(works.begin(), works.end());
  return CUDA_SUCCESS;
}
CUresult CopyByDriver(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  EXPECT_EQ(bytes, kMessage);
  g_streams->by_driver.emplace_back(target, source);
  g_streams->Enqueue(stream, {target, source});
  return CUDA_SUCCESS;
}
CUresult LaunchBlocks(const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
  const auto& args = *static_cast<PeerArgs*>(parameters[0]);
  const Work work = {reinterpret_cast<Address>(args.dst[0]),
                     reinterpret_cast<Address>(args.src[0])};
  g_streams->blocks = config->gridDimX;
  g_streams->by_blocks.push_back(work);
  g_streams->Enqueue(config->hStream, work);
  return CUDA_SUCCESS;
}
CUresult TextOf(CUresult, const char** text) {
  *text = "an error";
  return CUDA_SUCCESS;
}

// An all-to-all, of two ranks unless a test wants more.
class CopyCollectiveTest : public ::testing::Test {
 protected:
  CopyCollectiveTest() {
    g_streams = &streams_;
    kernels::cuda::Driver& driver = api_.driver;
    driver.cuCtxSetCurrent = SetContext;
    driver.cuEventRecord = Record;
    driver.cuStreamWaitEvent = Wait;
    driver.cuMemcpyDtoDAsync = CopyByDriver;
    driver.cuLaunchKernelEx = LaunchBlocks;
    kernels_.peer_push = HandleOf<CUfunction>(400);
    driver.cuGetErrorName = driver.cuGetErrorString = TextOf;
    SetUpRanks(2);
  }
  ~CopyCollectiveTest() override { g_streams = nullptr; }

  void SetUpRanks(int count) {
    ranks_.clear();
    ops_.assign(static_cast<size_t>(count), Op());
    for (int rank = 0; rank < count; ++rank) {
      ranks_.push_back({.gpu = rank,
                        .context = nullptr,
                        .stream = StreamOf(rank),
                        .event = HandleOf<CUevent>(100 + rank),
                        .comm = nullptr,
                        .kernels = &kernels_,
                        .side_stream = HandleOf<CUstream>(200 + rank),
                        .side_event = SideEventOf(rank)});
      Op& op = ops_[static_cast<size_t>(rank)];
      op.kind = CONCERT_OP_ALL_TO_ALL;
      op.collective = {};
      op.collective.count = kCount;
      op.collective.dtype = policies::Dtype::kBf16;
      op.collective.src = Source(rank, 0);
      op.collective.dst = Target(rank, 0);
    }
    Restart();
  }
  // Before anything is launched.
  void Restart() {
    streams_ = {};
    for (const CollectiveRank& rank : ranks_) streams_.done[rank.stream] = {EarlierOf(rank.gpu)};
  }

  static CUstream StreamOf(int rank) { return HandleOf<CUstream>(1 + rank); }
  static CUevent SideEventOf(int rank) { return HandleOf<CUevent>(300 + rank); }
  static Work EarlierOf(int rank) { return {1 + rank, 0}; }
  // What rank `from` has for rank `to`, and where that wants it.
  static Address Source(int from, int to) {
    return ((uint64_t{1} + from) << 32) + static_cast<uint64_t>(to) * kMessage;
  }
  static Address Target(int to, int from) { return Source(to, from) + (1 << 30); }

  absl::Status Launch(uint16_t sms, kernels::cuda::EachRank each_rank = kernels::cuda::OneByOne) {
    CollectiveContext context = {
        .api = api_,
        .ranks = ranks_,
        .shared_gpu_kernels = nullptr,
        .sm_count = 132,
        .each_rank = each_rank,
        .choice = {.transport = policies::Transport::kCopyEngine, .sms = sms}};
    std::vector<const Op*> parts;
    for (const Op& op : ops_) parts.push_back(&op);
    return kernels::cuda::LaunchCopies(context, parts);
  }

  const Works& DoneBefore(const Work& work) { return streams_.before.at(work); }
  const Works& DoneAtEnd(int rank) { return streams_.done.at(StreamOf(rank)); }

  FakeStreams streams_;
  kernels::cuda::CudaApi api_;
  kernels::cuda::KernelTable kernels_;
  std::vector<CollectiveRank> ranks_;
  std::vector<Op> ops_;
  // Of two ranks: what each keeps, by itself or fetched and sent back by the other, and sends.
  const std::vector<Work> own_ = {{Target(0, 0), Source(0, 0)}, {Target(1, 1), Source(1, 1)}};
  const std::vector<Work> fetched_ = {{Target(1, 0), Source(0, 0)}, {Target(0, 1), Source(1, 1)}};
  const std::vector<Work> returned_ = {{Target(0, 0), Target(1, 0)}, {Target(1, 1), Target(0, 1)}};
  const std::vector<Work> sent_ = {{Target(1, 0), Source(0, 1)}, {Target(0, 1), Source(1, 0)}};
};

// Ranks keep their own by way of their neighbours, beside messages to all others.
TEST_F(CopyCollectiveTest, EveryRankGetsAllMessagesByEnginesAlone) {
  for (const int count : {2, 3, 8}) {
    SetUpRanks(count);
    ASSERT_TRUE(Launch(0).ok());
    EXPECT_TRUE(streams_.by_blocks.empty());
    EXPECT_EQ(streams_.by_driver.size(), count * (count + 1u));
    for (int to = 0; to < count; ++to) {
      for (int from = 0; from < count; ++from) {
        EXPECT_EQ(streams_.contents.at(Target(to, from)), Source(from, to)) << from << "->" << to;
      }
    }
  }
}

// What others are sent they have in any case: it comes back from one of them.
TEST_F(CopyCollectiveTest, WhatEverybodyGetsCrossesTheLinksOnceMore) {
  for (const int count : {2, 3, 8}) {
    SetUpRanks(count);
    for (Op& op : ops_) op.kind = CONCERT_OP_ALL_GATHER;
    ASSERT_TRUE(Launch(0).ok());
    EXPECT_EQ(streams_.by_driver.size(), static_cast<size_t>(count * count));
    for (int to = 0; to < count; ++to) {
      for (int from = 0; from < count; ++from) {
        EXPECT_EQ(streams_.contents.at(Target(to, from)), Source(from, 0)) << from << "->" << to;
      }
    }
  }
}

// Else the driver would copy within a GPU, on all SMs.
TEST_F(CopyCollectiveTest, WhatARankKeepsCrossesOnItsNeighboursStream) {
  ASSERT_TRUE(Launch(0).ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(streams_.stream_of.at(fetched_[rank]), StreamOf(1 - rank));
    EXPECT_EQ(streams_.stream_of.at(returned_[rank]), StreamOf(1 - rank));
  }
}

// It lies there where a message is due, which must not come before it is gone again.
TEST_F(CopyCollectiveTest, AMessageWaitsForWhatLiesInItsPlace) {
  ASSERT_TRUE(Launch(0).ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(DoneBefore(fetched_[rank]), (Works{EarlierOf(0), EarlierOf(1)}));
    EXPECT_TRUE(DoneBefore(returned_[rank]).contains(fetched_[rank]));
    EXPECT_TRUE(DoneBefore(sent_[rank]).contains(returned_[rank]));
  }
}

TEST_F(CopyCollectiveTest, BlocksCopyTheOwnShareWhereTheChoiceNamesThem) {
  ASSERT_TRUE(Launch(8).ok());
  EXPECT_EQ(streams_.by_blocks, own_);
  EXPECT_EQ(streams_.by_driver, sent_);
  EXPECT_EQ(streams_.blocks, 8u);
}

// Blocks move multiples of 16 bytes, from and to multiples of it.
TEST_F(CopyCollectiveTest, ANeighbourKeepsWhatBlocksCannotCopy) {
  ops_[0].collective.src += 2;
  ASSERT_TRUE(Launch(8).ok());
  EXPECT_EQ(streams_.by_blocks, std::vector{own_[1]});
  EXPECT_EQ(streams_.by_driver.size(), 4u);
  EXPECT_EQ(streams_.contents.at(Target(0, 0)), Source(0, 0) + 2);
  EXPECT_EQ(streams_.contents.at(Target(1, 0)), Source(0, 1) + 2);
}

// Before Hopper there is no kernel for it.
TEST_F(CopyCollectiveTest, ANeighbourKeepsWhereThereAreNoBlocks) {
  kernels_.peer_push = nullptr;
  ASSERT_TRUE(Launch(8).ok());
  EXPECT_TRUE(streams_.by_blocks.empty());
  EXPECT_EQ(streams_.contents.at(Target(0, 0)), Source(0, 0));
}

TEST_F(CopyCollectiveTest, BlocksWaitForTheirOwnRankOnly) {
  ASSERT_TRUE(Launch(8).ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(DoneBefore(own_[rank]).contains(EarlierOf(rank)));
    EXPECT_FALSE(DoneBefore(own_[rank]).contains(EarlierOf(1 - rank)));
    EXPECT_FALSE(DoneBefore(own_[rank]).contains(sent_[rank])) << "beside it";
  }
}

TEST_F(CopyCollectiveTest, WhatIsSentWaitsForBothRanks) {
  ASSERT_TRUE(Launch(8).ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(DoneBefore(sent_[rank]), (Works{EarlierOf(0), EarlierOf(1)}));
  }
}

TEST_F(CopyCollectiveTest, ARankEndsWithWhatItWasSentAndItsOwnShare) {
  ASSERT_TRUE(Launch(8).ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(DoneAtEnd(rank).contains(sent_[0]) && DoneAtEnd(rank).contains(sent_[1]));
    EXPECT_TRUE(DoneAtEnd(rank).contains(own_[rank]));
    EXPECT_FALSE(DoneAtEnd(rank).contains(own_[1 - rank])) << "it is of no use here";
  }
  Restart();
  ASSERT_TRUE(Launch(0).ok());
  for (int rank = 0; rank < 2; ++rank) {
    for (int from = 0; from < 2; ++from) {
      EXPECT_TRUE(DoneAtEnd(rank).contains(sent_[from])) << rank;
      EXPECT_TRUE(DoneAtEnd(rank).contains(returned_[from])) << rank;
    }
  }
}

absl::Status LastFirst(size_t ranks, absl::FunctionRef<absl::Status(size_t rank)> call) {
  absl::Status status;
  for (size_t rank = ranks; rank-- > 0;) status.Update(call(rank));
  return status;
}

// Threads of their own may be faster or slower than each other.
TEST_F(CopyCollectiveTest, RanksMayBeCalledInAnyOrder) {
  for (const uint16_t sms : {0, 8}) {
    Restart();
    ASSERT_TRUE(Launch(sms).ok());
    const FakeStreams in_order = streams_;
    Restart();
    ASSERT_TRUE(Launch(sms, LastFirst).ok());
    EXPECT_EQ(streams_.before, in_order.before);
    EXPECT_EQ(streams_.done, in_order.done);
  }
}

// What another collective still does on the side is not waited for.
TEST_F(CopyCollectiveTest, WhatIsInPlaceIsNeitherCopiedNorWaitedFor) {
  const Work of_another = {99, 0};
  for (int rank = 0; rank < 2; ++rank) {
    streams_.recorded[SideEventOf(rank)] = {of_another};
    ops_[rank].kind = CONCERT_OP_ALL_GATHER;
    ops_[rank].collective.src = Target(rank, rank);
  }
  ASSERT_TRUE(Launch(0).ok());
  EXPECT_EQ(streams_.by_driver,
            (std::vector<Work>{{Target(1, 0), Target(0, 0)}, {Target(0, 1), Target(1, 1)}}));
  for (int rank = 0; rank < 2; ++rank) EXPECT_FALSE(DoneAtEnd(rank).contains(of_another));
}

TEST_F(CopyCollectiveTest, OfABroadcastOnlyTheRootCopiesToItself) {
  for (Op& op : ops_) {
    op.kind = CONCERT_OP_BROADCAST;
    op.collective.root = 1;
  }
  const Address from = Source(1, 0), here = Target(0, 0), back = Target(1, 0);
  ASSERT_TRUE(Launch(0).ok());
  EXPECT_EQ(streams_.by_driver, (std::vector<Work>{{here, from}, {back, here}}));
  Restart();
  ASSERT_TRUE(Launch(8).ok());
  EXPECT_EQ(streams_.by_driver, (std::vector<Work>{{here, from}}));
  EXPECT_EQ(streams_.by_blocks, (std::vector<Work>{{back, from}}));
}

}  // namespace
}  // namespace concert::test
