// Enqueues the skinny kernel.
#ifndef CONCERT_KERNELS_SKINNY_SKINNY_LAUNCHER_H_
#define CONCERT_KERNELS_SKINNY_SKINNY_LAUNCHER_H_

#include "absl/status/status.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/skinny/skinny_gemm.h"

namespace concert::kernels::cuda {

// Whether the GPU has it: compute capability 9.0 alone.
inline bool HasSkinnyKernel(const LaunchContext& context) {
  return context.kernels.skinny[0] != nullptr;
}

// Enqueues `skinny` on the context's stream; host work of some 5 us, for its tensor maps.
//
// `weights_ahead`: W and the gain may be read before the launch ahead on the stream has ended, if
// that releases it, as this kernel does.
//
// REQUIRES: HasSkinnyKernel(), no SkinnyObjection, the gain at a multiple of 16 bytes; D overlaps
// none of A, W and the gain.
absl::Status LaunchSkinny(const LaunchContext& context, const SkinnyGemm& skinny,
                          SkinnyTiling tiling, bool weights_ahead);
// Tiled as TilingOf() says.
absl::Status LaunchSkinny(const LaunchContext& context, const SkinnyGemm& skinny,
                          bool weights_ahead);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_SKINNY_SKINNY_LAUNCHER_H_
