// Enqueues the skinny kernel.
#ifndef CONCERT_KERNELS_SKINNY_SKINNY_LAUNCHER_H_
#define CONCERT_KERNELS_SKINNY_SKINNY_LAUNCHER_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/skinny/skinny_gemm.h"

namespace concert::kernels::cuda {

// Whether the GPU has it: compute capability 9.0 alone.
inline bool HasSkinnyKernel(const LaunchContext& context) {
  return context.kernels.skinny[0] != nullptr;
}

// TilingOf() on the context's GPU.
absl::StatusOr<SkinnyTiling> TilingOn(const LaunchContext& context, const SkinnyGemm& skinny);

// Enqueues `skinny` on the context's stream; host work of some 5 us, for its tensor maps.
//
// `weights_ahead`: W and the gain may be read before the launch ahead on the stream has ended, if
// that releases it, as this kernel does.
//
// REQUIRES: HasSkinnyKernel(), no SkinnyObjection, gains and what is normed ahead at multiples of
// 16 bytes; what is written overlaps nothing that is read but C.
absl::Status LaunchSkinny(const LaunchContext& context, const SkinnyGemm& skinny,
                          SkinnyTiling tiling, bool weights_ahead);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_SKINNY_SKINNY_LAUNCHER_H_
