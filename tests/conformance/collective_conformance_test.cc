// Collectives of every backend, among ranks on one GPU and on several.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/conformance/device_fixture.h"

namespace concert::daemon::conformance {
namespace {

using Ranks = std::vector<int>;                    // GPU of each rank
using Numbers = std::vector<std::vector<double>>;  // by rank

constexpr uint64_t kCount = 1003;  // odd, so that nothing is aligned by chance
constexpr uint32_t kRoot = 0;

class CollectiveConformanceTest : public DeviceTest {
 protected:
  // Runs `test` for every list of GPUs that this node has and can connect.
  void ForEachRankList(const std::function<void(const Ranks&)>& test) {
    int served = 0;
    for (const Ranks& ranks : {Ranks{0}, Ranks{0, 0}, Ranks{0, 1}, Ranks{0, 0, 0, 0},
                               Ranks{0, 1, 0, 1}, Ranks{0, 1, 2, 3}}) {
      if (*std::max_element(ranks.begin(), ranks.end()) >= node().gpu_count()) continue;
      const absl::Status status = node().Connect(ranks);
      if (absl::IsUnimplemented(status)) continue;
      ASSERT_TRUE(status.ok()) << status;
      SCOPED_TRACE(testing::PrintToString(ranks));
      test(ranks);
      ++served;
    }
    EXPECT_GT(served, 0);
  }

  static concert_collective_body BodyOf(uint16_t kind, Dtype dtype, uint8_t reduction) {
    concert_collective_body body{};
    body.count = kind == CONCERT_OP_BARRIER ? 0 : kCount;
    body.root = kind == CONCERT_OP_BROADCAST ? kRoot : 0;
    body.dtype = static_cast<uint8_t>(dtype);
    body.reduction = reduction;
    return body;
  }

  Op MakePart(uint16_t kind, const concert_collective_body& body, const Ranks& ranks, size_t rank) {
    concert_descriptor descriptor{};
    descriptor.kind = kind;
    descriptor.body.collective = body;
    return Admit(descriptor, ranks[rank], static_cast<uint32_t>(ranks.size()),
                 static_cast<uint32_t>(rank));
  }

  // Launches all parts, each with a timeline of its own, and waits for all of them.
  void RunCollective(const Ranks& ranks, const std::vector<Op>& ops,
                     Lane lane = policies::kCollectiveLane) {
    ++value_;
    std::vector<RankPart> parts;
    for (size_t i = 0; i < ranks.size(); ++i) {
      parts.push_back({.gpu = ranks[i],
                       .lane = lane,
                       .op = &ops[i],
                       .signal = {WordAddress(static_cast<int>(i) + 1), value_}});
    }
    const absl::Status status = node().LaunchCollective(parts, {});
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < ranks.size(); ++i) WaitFor(static_cast<int>(i) + 1, value_);
  }

  // Every rank sends random numbers from one buffer into another, poisoned one. Returns what each
  // received.
  std::vector<Bytes> Exchange(uint16_t kind, Dtype dtype, uint8_t reduction, const Ranks& ranks,
                              uint64_t src_slots, uint64_t dst_slots, Numbers& sent) {
    std::vector<Op> ops;
    std::vector<uint32_t> dst;
    const uint64_t dst_bytes = dst_slots * kCount * DtypeBytes(dtype);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      sent.push_back(RandomNumbers(dtype, src_slots * kCount, 100 + rank));
      concert_collective_body body = BodyOf(kind, dtype, reduction);
      body.src.buffer = NewBuffer(Encode(dtype, sent.back()), ranks[rank]);
      dst.push_back(NewPoisoned(dst_bytes, ranks[rank]));
      body.dst.buffer = dst.back();
      ops.push_back(MakePart(kind, body, ranks, rank));
    }
    RunCollective(ranks, ops);
    std::vector<Bytes> received;
    for (const uint32_t buffer : dst) received.push_back(Read(buffer, dst_bytes));
    return received;
  }

  static std::vector<double> Reduce(const Numbers& sent, uint8_t reduction) {
    std::vector<double> result = sent[0];
    for (size_t rank = 1; rank < sent.size(); ++rank) {
      for (size_t i = 0; i < result.size(); ++i) {
        const double x = sent[rank][i];
        result[i] = reduction == CONCERT_ABI_SUM   ? result[i] + x
                    : reduction == CONCERT_ABI_MAX ? std::max(result[i], x)
                                                   : std::min(result[i], x);
      }
    }
    return result;
  }

  static std::vector<double> Slot(const std::vector<double>& numbers, uint64_t slot) {
    return {numbers.begin() + slot * kCount, numbers.begin() + (slot + 1) * kCount};
  }

  uint64_t value_ = 0;
};

constexpr Dtype kDtypes[] = {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32};
constexpr uint8_t kReductions[] = {CONCERT_ABI_SUM, CONCERT_ABI_MAX, CONCERT_ABI_MIN};

TEST_P(CollectiveConformanceTest, AllReduce) {
  ForEachRankList([&](const Ranks& ranks) {
    for (const Dtype dtype : kDtypes) {
      for (const uint8_t reduction : kReductions) {
        Numbers sent;
        const auto received = Exchange(CONCERT_OP_ALL_REDUCE, dtype, reduction, ranks, 1, 1, sent);
        const std::vector<double> want = Reduce(sent, reduction);
        for (const Bytes& bytes : received) {
          EXPECT_EQ(bytes, received[0]) << "all ranks get the same bits";
          EXPECT_LE(RelativeError(Decode(dtype, bytes), want), Tolerance(dtype));
        }
      }
    }
  });
}

TEST_P(CollectiveConformanceTest, ReduceScatter) {
  ForEachRankList([&](const Ranks& ranks) {
    for (const Dtype dtype : kDtypes) {
      for (const uint8_t reduction : kReductions) {
        Numbers sent;
        const auto received =
            Exchange(CONCERT_OP_REDUCE_SCATTER, dtype, reduction, ranks, ranks.size(), 1, sent);
        const std::vector<double> all = Reduce(sent, reduction);
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
          EXPECT_LE(RelativeError(Decode(dtype, received[rank]), Slot(all, rank)), Tolerance(dtype))
              << rank;
        }
      }
    }
  });
}

TEST_P(CollectiveConformanceTest, AllGather) {
  ForEachRankList([&](const Ranks& ranks) {
    Numbers sent;
    const auto received =
        Exchange(CONCERT_OP_ALL_GATHER, Dtype::kBf16, 0, ranks, 1, ranks.size(), sent);
    for (const Bytes& bytes : received) {
      const std::vector<double> got = Decode(Dtype::kBf16, bytes);
      for (size_t from = 0; from < ranks.size(); ++from)
        EXPECT_EQ(Slot(got, from), sent[from]) << from;
    }
  });
}

TEST_P(CollectiveConformanceTest, AllToAll) {
  ForEachRankList([&](const Ranks& ranks) {
    Numbers sent;
    const auto received =
        Exchange(CONCERT_OP_ALL_TO_ALL, Dtype::kFp32, 0, ranks, ranks.size(), ranks.size(), sent);
    for (size_t to = 0; to < ranks.size(); ++to) {
      const std::vector<double> got = Decode(Dtype::kFp32, received[to]);
      for (size_t from = 0; from < ranks.size(); ++from) {
        EXPECT_EQ(Slot(got, from), Slot(sent[from], to)) << from << " to " << to;
      }
    }
  });
}

TEST_P(CollectiveConformanceTest, Broadcast) {
  ForEachRankList([&](const Ranks& ranks) {
    Numbers sent;
    const auto received = Exchange(CONCERT_OP_BROADCAST, Dtype::kFp16, 0, ranks, 1, 1, sent);
    for (const Bytes& bytes : received) EXPECT_EQ(Decode(Dtype::kFp16, bytes), sent[kRoot]);
  });
}

TEST_P(CollectiveConformanceTest, InPlaceAsNccl) {
  ForEachRankList([&](const Ranks& ranks) {
    const uint64_t slot_bytes = kCount * 4;
    Numbers sent;
    std::vector<uint32_t> reduce, gather, scatter;
    std::vector<Op> reduce_ops, gather_ops, scatter_ops;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      sent.push_back(RandomNumbers(Dtype::kFp32, kCount * ranks.size(), 200 + rank));
      const Bytes bytes = Encode(Dtype::kFp32, sent.back());
      for (auto* buffers : {&reduce, &gather, &scatter})
        buffers->push_back(NewBuffer(bytes, ranks[rank]));
      concert_collective_body body = BodyOf(CONCERT_OP_ALL_REDUCE, Dtype::kFp32, CONCERT_ABI_SUM);
      body.src.buffer = body.dst.buffer = reduce.back();
      reduce_ops.push_back(MakePart(CONCERT_OP_ALL_REDUCE, body, ranks, rank));
      body.src.buffer = body.dst.buffer = gather.back();
      body.src.offset = rank * slot_bytes;
      gather_ops.push_back(MakePart(CONCERT_OP_ALL_GATHER, body, ranks, rank));
      body.src.buffer = body.dst.buffer = scatter.back();
      std::swap(body.src.offset, body.dst.offset);
      scatter_ops.push_back(MakePart(CONCERT_OP_REDUCE_SCATTER, body, ranks, rank));
    }
    RunCollective(ranks, reduce_ops);
    RunCollective(ranks, gather_ops);
    RunCollective(ranks, scatter_ops, policies::kHighCollectiveLane);
    const std::vector<double> sum = Reduce(sent, CONCERT_ABI_SUM);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_LE(RelativeError(Decode(Dtype::kFp32, Read(reduce[rank], slot_bytes)), Slot(sum, 0)),
                1e-5);
      const auto scattered =
          Decode(Dtype::kFp32, Read(scatter[rank], slot_bytes, rank * slot_bytes));
      EXPECT_LE(RelativeError(scattered, Slot(sum, rank)), 1e-5);
      const auto gathered = Decode(Dtype::kFp32, Read(gather[rank], slot_bytes * ranks.size()));
      for (size_t from = 0; from < ranks.size(); ++from)
        EXPECT_EQ(Slot(gathered, from), Slot(sent[from], from));
    }
  });
}

// Work before a barrier on any rank's lane is done when any rank passes it.
TEST_P(CollectiveConformanceTest, BarrierWaitsForEveryRank) {
  ForEachRankList([&](const Ranks& ranks) {
    constexpr uint64_t kLong = 16 << 20;
    const uint32_t a = NewBuffer(Bytes(kLong, 0x5a)), b = NewBuffer(kLong);
    const Op copy = Copy(a, b, kLong);
    Launch(0, {&copy});
    ASSERT_TRUE(gpu(0).Order(policies::kCollectiveLane, 0).ok());
    std::vector<Op> ops;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ops.push_back(
          MakePart(CONCERT_OP_BARRIER, BodyOf(CONCERT_OP_BARRIER, Dtype::kFp32, 0), ranks, rank));
    }
    RunCollective(ranks, ops);
    EXPECT_EQ(Read(b, 4096, kLong - 4096), Bytes(4096, 0x5a));
  });
}

TEST_P(CollectiveConformanceTest, ConnectRefusesUnknownGpus) {
  const Ranks ranks = {0, 99};
  EXPECT_FALSE(node().Connect(ranks).ok());
  EXPECT_FALSE(node().Connect({}).ok());
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(CollectiveConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
