// Collectives by copies on a driver that runs nothing: by what means a rank's own share is copied,
// and who waits for whom.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernels/comm/engine_copies.h"
#include "kernels/comm/peer_args.h"
#include "kernels/comm/transports.h"
#include "proto/ring/ring_abi.h"

namespace concert::tests {
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

// Work is named by the address that it writes, or, where it was there before, by a small number.
using Works = std::set<uint64_t>;

struct FakeStreams {
  std::map<CUstream, Works> done;  // when the stream comes to what is enqueued next
  std::map<CUevent, Works> recorded;
  std::map<uint64_t, Works> before;  // what each work waits for

  CUresult batch_answer = CUDA_SUCCESS;
  int batch_calls = 0;
  std::vector<uint64_t> by_engine, by_driver, by_blocks;  // by whom work is done
  CUmemcpyAttributes attributes = {};
  unsigned blocks = 0;

  void Enqueue(CUstream stream, uint64_t work) {
    before[work] = done[stream];
    done[stream].insert(work);
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
CUresult CopyByDriver(CUdeviceptr target, CUdeviceptr, size_t, CUstream stream) {
  g_streams->by_driver.push_back(target);
  g_streams->Enqueue(stream, target);
  return CUDA_SUCCESS;
}
CUresult CopyBatch(CUdeviceptr* targets, CUdeviceptr*, size_t* sizes, size_t count,
                   CUmemcpyAttributes* attributes, size_t* first, size_t kinds, CUstream stream) {
  ++g_streams->batch_calls;
  if (g_streams->batch_answer != CUDA_SUCCESS) return g_streams->batch_answer;
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(sizes[0], kMessage);
  EXPECT_EQ(kinds, 1u);
  EXPECT_EQ(first[0], 0u);
  EXPECT_NE(stream, nullptr) << "the driver refuses the default stream";
  g_streams->attributes = attributes[0];
  g_streams->by_engine.push_back(targets[0]);
  g_streams->Enqueue(stream, targets[0]);
  return CUDA_SUCCESS;
}
CUresult LaunchBlocks(const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
  const auto target = reinterpret_cast<uint64_t>(static_cast<PeerArgs*>(parameters[0])->dst[0]);
  g_streams->blocks = config->gridDimX;
  g_streams->by_blocks.push_back(target);
  g_streams->Enqueue(config->hStream, target);
  return CUDA_SUCCESS;
}
CUresult TextOf(CUresult, const char** text) {
  *text = "an error";
  return CUDA_SUCCESS;
}

// An all-to-all of two ranks.
class CopyCollectiveTest : public ::testing::Test {
 protected:
  CopyCollectiveTest() {
    g_streams = &streams_;
    kernels::cuda::Driver& driver = api_.driver;
    driver.cuCtxSetCurrent = SetContext;
    driver.cuEventRecord = Record;
    driver.cuStreamWaitEvent = Wait;
    driver.cuMemcpyDtoDAsync = CopyByDriver;
    driver.cuMemcpyBatchAsync = CopyBatch;
    driver.cuLaunchKernelEx = LaunchBlocks;
    kernels_.peer_push = HandleOf<CUfunction>(40);
    driver.cuGetErrorName = driver.cuGetErrorString = TextOf;
    for (int rank = 0; rank < 2; ++rank) {
      ranks_[rank] = {.gpu = rank,
                      .context = nullptr,
                      .stream = StreamOf(rank),
                      .event = HandleOf<CUevent>(10 + rank),
                      .comm = nullptr,
                      .kernels = &kernels_,
                      .side_stream = HandleOf<CUstream>(20 + rank),
                      .side_event = SideEventOf(rank)};
      ops_[rank].kind = CONCERT_OP_ALL_TO_ALL;
      ops_[rank].collective = {};
      ops_[rank].collective.count = kCount;
      ops_[rank].collective.dtype = policies::Dtype::kBf16;
      ops_[rank].collective.src = SourceOf(rank);
      ops_[rank].collective.dst = Target(rank, 0);
      streams_.done[StreamOf(rank)] = {EarlierOf(rank)};
    }
  }
  ~CopyCollectiveTest() override { g_streams = nullptr; }

  static CUstream StreamOf(int rank) { return HandleOf<CUstream>(1 + rank); }
  static CUevent SideEventOf(int rank) { return HandleOf<CUevent>(30 + rank); }
  static uint64_t EarlierOf(int rank) { return 1 + rank; }
  static Address SourceOf(int rank) { return (uint64_t{1} + rank) << 32; }
  // Where rank `to` wants what rank `from` has for it.
  static Address Target(int to, int from) { return SourceOf(to) + (1 << 30) + from * kMessage; }

  absl::Status Launch(uint16_t sms, kernels::cuda::EachRank each_rank = kernels::cuda::OneByOne) {
    CollectiveContext context = {
        .api = api_,
        .ranks = ranks_,
        .shared_gpu_kernels = nullptr,
        .sm_count = 132,
        .each_rank = each_rank,
        .choice = {.transport = policies::Transport::kCopyEngine, .sms = sms},
        .engine_copies = &*engine_copies_};
    const Op* const parts[] = {&ops_[0], &ops_[1]};
    return kernels::cuda::LaunchCopies(context, parts);
  }

  const Works& DoneBefore(uint64_t work) { return streams_.before.at(work); }
  const Works& DoneAtEnd(int rank) { return streams_.done.at(StreamOf(rank)); }

  FakeStreams streams_;
  kernels::cuda::CudaApi api_;
  kernels::cuda::KernelTable kernels_;
  std::optional<kernels::cuda::EngineCopies> engine_copies_{std::in_place};
  std::array<CollectiveRank, 2> ranks_;
  std::array<Op, 2> ops_;
  const std::vector<uint64_t> own_ = {Target(0, 0), Target(1, 1)};
  const std::vector<uint64_t> sent_ = {Target(1, 0), Target(0, 1)};
};

TEST_F(CopyCollectiveTest, AsksForAnEngineWhereNoBlocksCopyTheOwnShare) {
  ASSERT_TRUE(Launch(0).ok());
  EXPECT_EQ(streams_.by_engine, own_);
  EXPECT_EQ(streams_.by_driver, sent_);
  EXPECT_EQ(streams_.attributes.flags, CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
  EXPECT_EQ(streams_.attributes.srcAccessOrder, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
}

TEST_F(CopyCollectiveTest, BlocksCopyTheOwnShareWhereTheChoiceNamesThem) {
  ASSERT_TRUE(Launch(8).ok());
  EXPECT_EQ(streams_.by_blocks, own_);
  EXPECT_EQ(streams_.by_driver, sent_);
  EXPECT_EQ(streams_.blocks, 8u);
}

// Blocks move multiples of 16 bytes, from and to multiples of it.
TEST_F(CopyCollectiveTest, AsksForAnEngineWhereBlocksCannotCopyTheOwnShare) {
  for (Op& op : ops_) op.collective.src += 2;
  ASSERT_TRUE(Launch(8).ok());
  EXPECT_EQ(streams_.by_engine, own_);
  EXPECT_TRUE(streams_.by_blocks.empty());
}

// Before Hopper there is no kernel for it.
TEST_F(CopyCollectiveTest, AsksForAnEngineWhereThereAreNoBlocks) {
  kernels_.peer_push = nullptr;
  ASSERT_TRUE(Launch(8).ok());
  EXPECT_EQ(streams_.by_engine, own_);
  EXPECT_TRUE(streams_.by_blocks.empty());
}

TEST_F(CopyCollectiveTest, ADriverWithoutBatchesCopiesTheOwnShareAsItDoes) {
  api_.driver.cuMemcpyBatchAsync = nullptr;
  ASSERT_TRUE(Launch(0).ok());
  EXPECT_EQ(streams_.by_driver, (std::vector{own_[0], sent_[0], own_[1], sent_[1]}));
}

TEST_F(CopyCollectiveTest, ADriverThatRefusesABatchIsNotAskedAgain) {
  for (const CUresult answer : {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE}) {
    streams_.batch_answer = answer;
    streams_.batch_calls = 0;
    streams_.by_driver.clear();
    engine_copies_.emplace();
    ASSERT_TRUE(Launch(0).ok());
    ASSERT_TRUE(Launch(0).ok());
    EXPECT_EQ(streams_.batch_calls, 1);
    EXPECT_EQ(streams_.by_driver.size(), 8u);
  }
}

TEST_F(CopyCollectiveTest, ABrokenGpuIsNoRefusal) {
  streams_.batch_answer = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_FALSE(Launch(0).ok());
  EXPECT_TRUE(streams_.by_driver.empty());
}

TEST_F(CopyCollectiveTest, TheOwnShareWaitsForItsOwnRankOnly) {
  for (const uint16_t sms : {0, 8}) {
    ASSERT_TRUE(Launch(sms).ok());
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(DoneBefore(own_[rank]).contains(EarlierOf(rank)));
      EXPECT_FALSE(DoneBefore(own_[rank]).contains(EarlierOf(1 - rank)));
      EXPECT_FALSE(DoneBefore(own_[rank]).contains(sent_[rank])) << "beside it";
    }
    streams_ = {};
    for (int rank = 0; rank < 2; ++rank) streams_.done[StreamOf(rank)] = {EarlierOf(rank)};
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
}

absl::Status LastFirst(size_t ranks, absl::FunctionRef<absl::Status(size_t rank)> call) {
  absl::Status status;
  for (size_t rank = ranks; rank-- > 0;) status.Update(call(rank));
  return status;
}

// Threads of their own may be faster or slower than each other.
TEST_F(CopyCollectiveTest, RanksMayBeCalledInAnyOrder) {
  ASSERT_TRUE(Launch(8).ok());
  const FakeStreams in_order = std::exchange(streams_, {});
  for (int rank = 0; rank < 2; ++rank) streams_.done[StreamOf(rank)] = {EarlierOf(rank)};
  ASSERT_TRUE(Launch(8, LastFirst).ok());
  EXPECT_EQ(streams_.before, in_order.before);
  EXPECT_EQ(streams_.done, in_order.done);
}

// What another collective still does on the side is not waited for.
TEST_F(CopyCollectiveTest, WhatIsInPlaceIsNeitherCopiedNorWaitedFor) {
  constexpr uint64_t kOfAnother = 99;
  for (int rank = 0; rank < 2; ++rank) {
    streams_.recorded[SideEventOf(rank)] = {kOfAnother};
    ops_[rank].kind = CONCERT_OP_ALL_GATHER;
    ops_[rank].collective.src = Target(rank, rank);
  }
  ASSERT_TRUE(Launch(0).ok());
  EXPECT_EQ(streams_.by_driver, sent_);
  EXPECT_TRUE(streams_.by_engine.empty());
  for (int rank = 0; rank < 2; ++rank) EXPECT_FALSE(DoneAtEnd(rank).contains(kOfAnother));
}

TEST_F(CopyCollectiveTest, OfABroadcastOnlyTheRootCopiesToItself) {
  for (Op& op : ops_) {
    op.kind = CONCERT_OP_BROADCAST;
    op.collective.root = 1;
  }
  ASSERT_TRUE(Launch(0).ok());
  EXPECT_EQ(streams_.by_engine, std::vector{Target(1, 0)});
  EXPECT_EQ(streams_.by_driver, std::vector{Target(0, 0)});
}

}  // namespace
}  // namespace concert::tests
