// Arguments of the collectives among ranks that share one GPU, shared by host and device code. By
// value.
#ifndef CONCERT_KERNELS_COMM_LOCAL_COLLECTIVE_ARGS_H_
#define CONCERT_KERNELS_COMM_LOCAL_COLLECTIVE_ARGS_H_

#include <cstdint>

namespace concert::kernels::cuda {

inline constexpr int kMaxLocalRanks = 64;  // pointers of all ranks travel as kernel parameters
inline constexpr int kLocalCollectiveThreads = 256;

struct LocalCollectiveArgs {
  const void* src[kMaxLocalRanks];
  void* dst[kMaxLocalRanks];
  uint64_t count;  // per rank or per peer as concert_collective_body, in units of what the kernel
                   // moves at once
  uint32_t ranks;
  uint32_t root;
  uint32_t reduction;  // kernels::Reduction
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_LOCAL_COLLECTIVE_ARGS_H_
