// A group of equal GEMMs as one cuBLASLt launch over arrays of pointers: the group form where there
// is no kernel or no work list for it.
#ifndef CONCERT_KERNELS_GROUP_BATCHED_LIBRARY_H_
#define CONCERT_KERNELS_GROUP_BATCHED_LIBRARY_H_

#include <atomic>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/group/plan/work_list.h"
#include "kernels/group/pointer_ring.h"
#include "kernels/op.h"

namespace concert::kernels::cuda {

// Whether all ops are the same GEMM on different matrices, such that one launch can carry them: 2
// to kMaxGroupProblems of batch 1, equal in shape, row strides, dtype, scalars and activation,
// without bias or fp8's scales (each would need its own: fp8 is no batch at all) and without silu
// (which cuBLASLt cannot fuse).
bool AreOneBatch(std::span<const Op* const> ops);

// One thread at a time, with the GPU's context current; see PointerRing for what it owns.
class BatchedLibrary {
 public:
  BatchedLibrary(const Driver& driver, int gpu) : pointers_(driver, gpu) {}

  absl::Status Init() { return pointers_.Init(); }

  // Enqueues `ops` on `lane`, whose stream and workspace the context names. False, with nothing
  // enqueued that matters, if they are not one batch, cuBLASLt has no kernel that takes arrays of
  // pointers for it (before cuBLAS 13 it has none), or the lane has too many uploads on their way.
  // Tuned variants are those of single GEMMs and play no part. An error: nothing was started.
  absl::StatusOr<bool> TryLaunch(LaunchContext& context, policies::Lane lane,
                                 std::span<const Op* const> ops);

  // How many launches it has enqueued; any thread.
  uint64_t launches() const { return launches_.load(std::memory_order_relaxed); }

 private:
  PointerRing pointers_;
  std::atomic<uint64_t> launches_{0};  // one writer; relaxed, for it publishes nothing
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_BATCHED_LIBRARY_H_
