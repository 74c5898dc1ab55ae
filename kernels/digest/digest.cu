// What digest.h defines, of memory of the GPU, and whether two ranges are equal.
#include "kernels/digest/digest_piece.h"

namespace concert::kernels::cuda {

extern "C" __global__ void __launch_bounds__(kDigestThreads)
    concert_digest(const __grid_constant__ DigestArgs args) {
  constexpr uint32_t kWarp = 32;
  __shared__ uint64_t sums[kDigestThreads / kWarp];
  uint64_t sum = DigestOfShare(args, blockIdx.x, threadIdx.x);
  for (uint32_t lanes = kWarp / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (uint32_t warp = 1; warp < kDigestThreads / kWarp; ++warp) sum += sums[warp];
  atomicAdd(reinterpret_cast<unsigned long long*>(args.result), sum);
}

// Blocks that begin after a difference was seen read nothing. Relaxed: one that misses it only
// takes longer.
extern "C" __global__ void __launch_bounds__(kDigestThreads)
    concert_compare(const __grid_constant__ CompareArgs args) {
  auto* result = reinterpret_cast<volatile uint64_t*>(args.result);
  if (*result != 0) return;
  if (ShareDiffers(args, blockIdx.x, threadIdx.x)) *result = 1;
}

}  // namespace concert::kernels::cuda
