// GEMMs of two GPUs beside all-reduces between them, under policies that treat collectives each in
// their own way: the numbers are right, and the records of plans say who left SMs to whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "daemon/telemetry/records.h"
#include "tests/support/bf16.h"
#include "tests/support/seed.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

using daemon::OpRecord;
using daemon::PlanRecord;

constexpr uint32_t kGpus = 2;
constexpr int kCollectiveSms = 16;
constexpr uint32_t kM = 128, kN = 132 * 128, kK = 32;  // on all SMs of an H200, if it may
constexpr uint32_t kCount = 1 << 22;
constexpr int kGemms = 24;  // of a round

// Small integers, so that every sum is exact, also in bf16.
std::vector<float> SmallIntegers(size_t count, std::mt19937& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 3) - 1);
  return values;
}

std::vector<uint16_t> AllToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), ToBf16);
  return bits;
}

template <typename T>
Buffer MakeBuffer(const Session& session, const std::vector<T>& values, uint32_t gpu) {
  Buffer buffer = session.Allocate(values.size() * sizeof(T), gpu).value();
  buffer.Write(values.data(), values.size() * sizeof(T)).Check();
  return buffer;
}

template <typename T>
std::vector<T> Read(const Buffer& buffer, size_t count) {
  std::vector<T> values(count);
  buffer.Read(values.data(), count * sizeof(T)).Check();
  return values;
}

// A GPU's client: a chain of GEMMs on one queue, a rank's collectives on another.
struct Rank {
  Rank(TestDaemon& daemon, uint32_t rank, std::mt19937& random)
      : session(daemon.Connect("rank " + std::to_string(rank))),
        gemms(session.CreateQueue({.gpu = rank}).value()),
        links(session.CreateQueue({.gpu = rank}).value()),
        group(session.Join({.name = "tp", .rank = rank, .ranks = kGpus, .gpu = rank}).value()),
        a(SmallIntegers(kM * kK, random)),
        w(SmallIntegers(kN * kK, random)),
        src(SmallIntegers(kCount, random)),
        a_buffer(MakeBuffer(session, AllToBf16(a), rank)),
        w_buffer(MakeBuffer(session, AllToBf16(w), rank)),
        d_buffer(MakeBuffer(session, std::vector<uint16_t>(kM * kN), rank)),
        src_buffer(MakeBuffer(session, src, rank)),
        dst_buffer(MakeBuffer(session, std::vector<float>(kCount), rank)) {}

  Ticket Gemm() {
    return gemms.Gemm(
        {.m = kM, .n = kN, .k = kK, .a = a_buffer, .w = w_buffer, .d = d_buffer, .dtype = kBf16});
  }
  Ticket Reduce() {
    return links.AllReduce(group,
                           {.src = src_buffer, .dst = dst_buffer, .count = kCount, .dtype = kFp32});
  }

  Session session;
  Queue gemms, links;
  Communicator group;
  const std::vector<float> a, w, src;
  Buffer a_buffer, w_buffer, d_buffer, src_buffer, dst_buffer;
  std::vector<OpRecord> ops;  // so far
  std::vector<PlanRecord> plans;
};

class CollectiveBesideGemmsTest : public testing::Test {
 protected:
  void Start(const std::string& policy) {
    daemon_.emplace(
        TestDaemonOptions{.gpus = kGpus, .collective_sms = kCollectiveSms, .policy = policy});
    if (daemon_->gpu_count() < static_cast<int>(kGpus)) GTEST_SKIP() << "needs two GPUs";
    for (uint32_t rank = 0; rank < kGpus; ++rank) ranks_.emplace_back(*daemon_, rank, random_);
  }

  // Some GEMMs, an all-reduce beside them, and more GEMMs, until all have ended.
  void Round() {
    std::vector<Ticket> tickets;
    for (int i = 0; i < kGemms; ++i) {
      for (Rank& rank : ranks_) {
        if (i == kGemms / 4) tickets.push_back(rank.Reduce());
        tickets.push_back(rank.Gemm());
      }
    }
    for (const Ticket& ticket : tickets) {
      const Status status = ticket.Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }

  // Rounds until `seen`, which looks at the records so far; false if that takes too long.
  template <typename Seen>
  bool RoundsUntil(Seen seen) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!seen()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      Round();
      if (HasFatalFailure()) return false;
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) DrainRecords(gpu);
    }
    return true;
  }
  void DrainRecords(uint32_t gpu) {
    struct {
      void operator()(const OpRecord& op) { rank.ops.push_back(op); }
      void operator()(const PlanRecord& plan) { rank.plans.push_back(plan); }
      Rank& rank;
    } file{ranks_[gpu]};
    daemon_->records(static_cast<int>(gpu)).Drain(file);
  }

  void CheckNumbers() {
    for (const Rank& rank : ranks_) {
      std::vector<float> d(kM * kN);
      for (uint32_t i = 0; i < kM; ++i) {
        for (uint32_t j = 0; j < kN; ++j) {
          for (uint32_t l = 0; l < kK; ++l)
            d[i * kN + j] += rank.a[i * kK + l] * rank.w[j * kK + l];
        }
      }
      EXPECT_TRUE(Read<uint16_t>(rank.d_buffer, kM * kN) == AllToBf16(d));
      std::vector<float> sum = ranks_[0].src;
      for (size_t i = 0; i < kCount; ++i) sum[i] += ranks_[1].src[i];
      EXPECT_TRUE(Read<float>(rank.dst_buffer, kCount) == sum);
    }
  }

  std::mt19937 random_{test::Seed()};
  std::optional<TestDaemon> daemon_;
  std::deque<Rank> ranks_;
};

bool IsCollective(const PlanRecord& plan) { return plan.reason == policies::Reason::kCollective; }

// Plans of GEMMs that were decided while the collective ran.
std::vector<PlanRecord> DecidedBeside(const std::vector<PlanRecord>& plans,
                                      const PlanRecord& collective) {
  std::vector<PlanRecord> beside;
  std::copy_if(plans.begin(), plans.end(), std::back_inserter(beside), [&](const PlanRecord& plan) {
    return !IsCollective(plan) && plan.decided_at > collective.started_at &&
           plan.decided_at < collective.finished_at;
  });
  return beside;
}

TEST_F(CollectiveBesideGemmsTest, PriorityPutsThemOnALaneAheadOfGemms) {
  ASSERT_NO_FATAL_FAILURE(Start("priority"));
  if (IsSkipped()) return;
  const auto beside = [&] {
    const std::vector<PlanRecord>& plans = ranks_[0].plans;
    return std::any_of(plans.begin(), plans.end(), [&](const PlanRecord& plan) {
      return IsCollective(plan) && !DecidedBeside(plans, plan).empty();
    });
  };
  EXPECT_TRUE(RoundsUntil(beside)) << "no GEMM was launched while a collective ran";
  for (const Rank& rank : ranks_) {
    for (const OpRecord& op : rank.ops) {
      EXPECT_EQ(policies::IsHighPriority(op.lane), op.kind == CONCERT_OP_ALL_REDUCE);
    }
    for (const PlanRecord& plan : rank.plans) {
      // By kernels of ours it takes fewer where more are no gain.
      EXPECT_LE(plan.sm_count, IsCollective(plan) ? kCollectiveSms : 0);
      EXPECT_EQ(plan.sm_count > 0, IsCollective(plan));
    }
  }
  CheckNumbers();
}

TEST_F(CollectiveBesideGemmsTest, StaticSplitLeavesThemTheirSms) {
  ASSERT_NO_FATAL_FAILURE(Start("static_split"));
  if (IsSkipped()) return;
  const int all_sms = daemon_->engine().node().gpu(0).info().model.sm_count;
  int shrunk = 0;
  // From the first launch that leaves them SMs, since news that a collective has begun takes a
  // moment, to the collective's end, all do.
  const auto count_shrunk = [&] {
    shrunk = 0;
    for (const PlanRecord& collective : ranks_[0].plans) {
      if (!IsCollective(collective)) continue;
      bool told = false;
      for (const PlanRecord& plan : DecidedBeside(ranks_[0].plans, collective)) {
        told |= plan.sm_count < all_sms;
        shrunk += told;
        if (told) {
          EXPECT_LT(plan.sm_count, all_sms);
        }
      }
    }
    return shrunk >= 3;
  };
  EXPECT_TRUE(RoundsUntil(count_shrunk)) << shrunk << " launches left SMs";
  const auto widest = std::max_element(
      ranks_[0].plans.begin(), ranks_[0].plans.end(),
      [](const PlanRecord& a, const PlanRecord& b) { return a.sm_count < b.sm_count; });
  EXPECT_EQ(widest->sm_count, all_sms) << "without a collective";
  CheckNumbers();
}

}  // namespace
}  // namespace concert::test
