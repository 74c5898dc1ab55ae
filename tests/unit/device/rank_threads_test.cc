// Calls for the ranks of a collective: each once, side by side, whether their threads sleep or not.
#include "daemon/device/cuda/rank_threads.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace concert::test {
namespace {

using daemon::cuda::RankThreads;

constexpr size_t kRanks = 4;
constexpr int64_t kForEver_ns = int64_t{1} << 60;

void ExpectEachOnce(RankThreads& threads, size_t ranks) {
  std::array<std::atomic<int>, kRanks> calls = {};
  const absl::Status status = threads.ForEach(ranks, [&](size_t rank) {
    calls[rank].fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(calls[rank].load(std::memory_order_relaxed), rank < ranks ? 1 : 0) << rank;
  }
}

TEST(RankThreadsTest, CallForEachRankOnce) {
  RankThreads threads(kRanks, kForEver_ns);
  for (size_t i = 0; i < 300; ++i) ExpectEachOnce(threads, 1 + i % kRanks);
}

// They go to sleep at once, or are about to.
TEST(RankThreadsTest, CallForEachRankOnceWhenTheySleep) {
  RankThreads threads(kRanks, 0);
  for (size_t i = 0; i < 300; ++i) ExpectEachOnce(threads, 1 + i % kRanks);
}

TEST(RankThreadsTest, CallsAreSideBySide) {
  RankThreads threads(kRanks, kForEver_ns);
  std::atomic<size_t> there = 0;
  const absl::Status status = threads.ForEach(kRanks, [&](size_t) {
    there.fetch_add(1);
    while (there.load() < kRanks) {  // for ever, if one came after the other
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RankThreadsTest, TheFirstRanksErrorIsTheAnswer) {
  for (const int64_t spin_ns : {int64_t{0}, kForEver_ns}) {
    RankThreads threads(kRanks, spin_ns);
    std::atomic<int> calls = 0;
    const absl::Status status = threads.ForEach(kRanks, [&](size_t rank) {
      calls.fetch_add(1);
      if (rank == 3) return absl::InternalError("three");
      if (rank == 2) return absl::InternalError("two");
      return absl::OkStatus();
    });
    EXPECT_EQ(status, absl::InternalError("two"));
    EXPECT_EQ(calls.load(), kRanks);
    ExpectEachOnce(threads, kRanks);  // nothing is left of it
  }
}

// As where a GPU is alone.
TEST(RankThreadsTest, OneRankNeedsNoThread) {
  RankThreads threads(1, 0);
  ExpectEachOnce(threads, 1);
}

}  // namespace
}  // namespace concert::test
