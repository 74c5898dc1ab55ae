// One way in which a rank's process has its GEMMs and its part of a collective done.
#ifndef CONCERT_TESTS_BENCH_RANK_CLIENT_H_
#define CONCERT_TESTS_BENCH_RANK_CLIENT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/gemm_workload.h"
#include "tests/bench/rank_board.h"

namespace concert::bench {

// The memory of a rank, as much of each kind as the largest task needs.
enum class RankMemory { kGemm, kSource, kOutput };
struct RankMemorySizes {
  uint64_t gemm = 0, source = 0, output = 0;
};

// Used by one thread.
class RankClient {
 public:
  virtual ~RankClient() = default;

  // What Run does from now on. The workload, which has one GEMM, must outlive that. NOT_FOUND, with
  // the reason, where this way cannot do it.
  virtual absl::Status Prepare(const OverlapTask& task, const GemmWorkload& workload) = 0;
  // Submits what is wanted, the collective first, and returns when this thread, polling, has seen
  // its end; since `start_ns`.
  virtual absl::StatusOr<RunEnds> Run(bool gemms, bool collective, uint64_t start_ns) = 0;
  virtual absl::Status Write(RankMemory memory, uint64_t offset, std::span<const uint8_t> data) = 0;
  virtual absl::Status Read(RankMemory memory, uint64_t offset, std::span<uint8_t> data) = 0;
};

// Through the daemon at `socket`: the GEMMs are one queue, the collective another, and both are
// handed over together.
absl::StatusOr<std::unique_ptr<RankClient>> MakeDaemonRank(const std::string& socket, uint32_t rank,
                                                           uint32_t ranks,
                                                           const RankMemorySizes& sizes);

// How a process without concert launches: cuBLASLt's first kernel, and NCCL.
struct LocalWay {
  enum class Order {
    kSerial,    // one stream, the GEMMs first
    kStreams,   // two streams, the collective launched first
    kPriority,  // the same, the collective's stream of the highest priority
  };
  enum class Library {
    kAny,      // as many CTAs as NCCL likes
    kEight,    // eight at most
    kZeroCta,  // copy engines: symmetric windows and NCCL_CTA_POLICY_ZERO
  };
  Order order = Order::kSerial;
  Library library = Library::kAny;
};
// "serial", "streams", "priority", "priority_8_ctas", "conccl"; null for another.
const LocalWay* FindLocalWay(std::string_view name);

// What the local ways of one rank have in common: a GPU, memory, communicators.
class LocalRank {
 public:
  // Opens the GPU with this uuid and, with the other ranks, communicators for `ways`. UNAVAILABLE
  // without CUDA.
  static absl::StatusOr<std::unique_ptr<LocalRank>> Open(const std::array<uint8_t, 16>& uuid,
                                                         uint32_t rank, RankBoard& board,
                                                         std::span<const LocalWay> ways,
                                                         const RankMemorySizes& sizes);
  virtual ~LocalRank() = default;
  // Of one of the ways that were given to Open; the LocalRank must outlive it.
  virtual std::unique_ptr<RankClient> Client(const LocalWay& way) = 0;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RANK_CLIENT_H_
