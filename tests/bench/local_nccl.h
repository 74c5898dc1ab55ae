// NCCL in a rank's process: communicators with the other ranks, and memory that suits them.
#ifndef CONCERT_TESTS_BENCH_LOCAL_NCCL_H_
#define CONCERT_TESTS_BENCH_LOCAL_NCCL_H_

#include <array>
#include <cstdint>
#include <memory>

#include "tests/bench/local_context.h"
#include "tests/bench/rank_client.h"

namespace concert::bench::local {

// Used by one thread. The context must outlive it.
class RankNccl {
 public:
  using Library = LocalWay::Library;

  // NOT_FOUND without NCCL.
  static absl::StatusOr<std::unique_ptr<RankNccl>> Open(const Context& context, uint32_t rank,
                                                        uint32_t ranks);
  ~RankNccl();

  // As NCCL wants it for everything that it can do. Freed with this.
  absl::StatusOr<CUdeviceptr> Allocate(uint64_t bytes);
  // With all other ranks: rank 0 tells them the ids through the board. Memory that Allocate gave is
  // registered with the communicator for kZeroCta. Why that one could not be made says
  // `zero_cta()`; another that could not is an error.
  absl::Status Connect(RankBoard& board, std::span<const Library> libraries);
  // Whether the library carries kZeroCta collectives at all; NOT_FOUND with the reason.
  const absl::Status& zero_cta() const { return zero_cta_; }

  // This rank's part, on `stream`.
  absl::Status Launch(Library library, const CollectiveShape& shape, CUdeviceptr source,
                      CUdeviceptr output, CUstream stream) const;

 private:
  struct Allocation {
    void* address;
    uint64_t bytes;
    bool by_nccl;
  };
  struct Windows;  // the functions that libraries of before 2.27 lack

  RankNccl(const Context& context, uint32_t rank, uint32_t ranks);
  absl::Status MakeComm(RankBoard& board, Library library);
  absl::Status RegisterWindows(ncclComm_t comm);
  absl::Status Check(ncclResult_t result, const char* call) const {
    return nccl_.ToStatus(result, call);
  }

  const Context& context_;
  const kernels::cuda::Nccl& nccl_;
  const uint32_t rank_, ranks_;
  std::unique_ptr<Windows> windows_;
  std::vector<Allocation> allocations_;
  std::array<ncclComm_t, kMaxCommunicators> comms_{};  // [Library]
  absl::Status zero_cta_;
};

}  // namespace concert::bench::local

#endif  // CONCERT_TESTS_BENCH_LOCAL_NCCL_H_
