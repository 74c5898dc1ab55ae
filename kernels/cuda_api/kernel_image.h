// concert's own CUDA kernels: fatbins that the build embeds (concert_embed_kernels in
// deploy/cmake), loaded through the driver, so that nothing links the CUDA runtime.
#ifndef CONCERT_KERNELS_CUDA_API_KERNEL_IMAGE_H_
#define CONCERT_KERNELS_CUDA_API_KERNEL_IMAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/driver.h"
#include "policies/seam/work.h"

namespace concert::kernels::cuda {

inline constexpr int kDtypeCount = 3;  // that kernels write; fp8 is only read

// Row of `dtype` in the tables below. REQUIRES: not fp8.
constexpr int DtypeIndex(policies::Dtype dtype) { return static_cast<int>(dtype) - 1; }

// Lengths of heads that attention has kernels for, and the row of one in the tables below.
inline constexpr std::array<uint32_t, 3> kHeadDims = {64, 128, 256};
constexpr size_t HeadDimIndex(uint32_t head_dim) { return head_dim / 128; }

// One GPU's kernels. Every function is loaded when this is made, never during traffic. Immutable
// afterwards. The last index says whether the kernel moves 16 bytes at a time (1) or one element
// (0).
struct KernelTable {
  // By whether the product is gated, and by dtype; of fp8 by that of D: bf16, fp16.
  std::array<std::array<CUfunction, kDtypeCount>, 2> fallback_gemm{};
  std::array<std::array<CUfunction, 2>, 2> fallback_gemm_fp8{};
  std::array<std::array<CUfunction, 2>, kDtypeCount> epilogue{};
  std::array<CUfunction, kDtypeCount> epilogue_of_sums{};
  std::array<std::array<CUfunction, 2>, kDtypeCount> all_reduce{};
  std::array<std::array<CUfunction, 2>, kDtypeCount> reduce_scatter{};
  // kernels/group, by kGroupFootprints, for bf16, fp16 and e4m3; null but on compute
  // capability 9.0.
  std::array<std::array<CUfunction, 3>, 3> group{};
  CUfunction repack = nullptr;                     // for the group kernel
  CUfunction rows = nullptr;                       // kernels/rows
  CUfunction copy_bindings = nullptr;              // kernels/program
  CUfunction digest = nullptr, compare = nullptr;  // kernels/digest
  // kernels/step, for up to 8, 16 and 32 rows; null but on compute capability 9.0.
  std::array<CUfunction, 3> step{};
  // kernels/skinny, for tiles of 32, 64, 96 and 128 columns; null but on compute capability 9.0.
  std::array<CUfunction, 4> skinny{};
  // kernels/attention_decode and kernels/attention_prefill, by whether the cache is in e4m3 and by
  // kHeadDims.
  std::array<std::array<CUfunction, kHeadDims.size()>, 2> attention_decode{}, attention_prefill{};
  std::array<CUfunction, kHeadDims.size()> attention_combine{};
  // kernels/comm/peer_kernels.cu, by dtype; null below compute capability 9.0.
  std::array<CUfunction, kDtypeCount> peer_small_reduce{}, peer_reduce{}, peer_all_reduce{};
  std::array<CUfunction, kDtypeCount> peer_small_move{};
  CUfunction peer_push = nullptr;
  // By log2 of the word's bytes.
  std::array<CUfunction, 5> all_gather{}, all_to_all{}, broadcast{};
};

// Owns the modules of one context.
class KernelImage {
 public:
  static constexpr int kImageCount = 13;

  // Loads everything into the current context.
  static absl::StatusOr<KernelImage> Load(const Driver& driver, int gpu);

  KernelImage() = default;
  KernelImage(KernelImage&& other) noexcept { *this = std::move(other); }
  KernelImage& operator=(KernelImage&& other) noexcept;
  ~KernelImage();

  const KernelTable& table() const { return table_; }

 private:
  absl::Status LoadModules(int gpu);
  absl::Status FindAll();

  const Driver* driver_ = nullptr;
  int gpu_ = 0;
  std::array<CUmodule, kImageCount> modules_{};  // null: not for this GPU
  KernelTable table_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_KERNEL_IMAGE_H_
