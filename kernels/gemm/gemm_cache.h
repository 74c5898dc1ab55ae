// How each GEMM seen before is run: cuBLASLt's descriptors and algorithm, made once and reused.
#ifndef CONCERT_KERNELS_GEMM_GEMM_CACHE_H_
#define CONCERT_KERNELS_GEMM_GEMM_CACHE_H_

#include <cublasLt.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/op.h"
#include "policies/seam/variant.h"

namespace concert::kernels::cuda {

enum class ScaleMode : uint8_t { kNone, kPerTensor, kPerRow };

// All that cuBLASLt's choice depends on.
struct GemmKey {
  uint32_t m = 0, n = 0, k = 0, batch = 0;
  uint64_t lda = 0, ldw = 0, ldc = 0, ldd = 0;
  uint64_t stride_a = 0, stride_w = 0, stride_c = 0, stride_d = 0;
  Dtype dtype = Dtype::kBf16, d_dtype = Dtype::kBf16;
  ScaleMode a_scales = ScaleMode::kNone, w_scales = ScaleMode::kNone;
  bool scales_aligned = false;
  Activation activation = Activation::kNone;
  bool allow_tf32 = false;
  bool has_c = false;
  bool has_bias = false;
  bool bias_aligned = false;
  // log2 of what the address is a multiple of, at most 8: cuBLASLt asks for no more than 256 bytes.
  uint8_t align_a = 0, align_w = 0, align_c = 0, align_d = 0;
  uint16_t sm_budget = 0;
  // Operands are arrays of addresses, one per member of the batch, instead of strided matrices.
  bool pointer_array = false;
  // The most that an algorithm may use.
  uint64_t workspace_bytes = 0;
  // What is wanted, found by tuning or being tuned; source kNone: what the heuristic likes best.
  policies::Variant variant;

  static GemmKey Of(const GemmArgs& args, int sm_budget, uint64_t workspace_bytes);
  bool operator==(const GemmKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const GemmKey& x) {
    return H::combine(std::move(h), x.m, x.n, x.k, x.batch, x.lda, x.ldw, x.ldc, x.ldd, x.stride_a,
                      x.stride_w, x.stride_c, x.stride_d, x.dtype, x.d_dtype, x.a_scales,
                      x.w_scales, x.scales_aligned, x.activation, x.allow_tf32, x.has_c, x.has_bias,
                      x.bias_aligned, x.align_a, x.align_w, x.align_c, x.align_d, x.sm_budget,
                      x.pointer_array, x.workspace_bytes, x.variant.source, x.variant.sm_budget,
                      x.variant.algo_id, x.variant.tile_id, x.variant.stages_id,
                      x.variant.cluster_id, x.variant.split_k, x.variant.swizzle, x.variant.custom);
  }
};

enum class GemmPath : uint8_t {
  kUnplanned,
  kFused,         // cuBLASLt with its own epilogue, or none needed
  kThenEpilogue,  // cuBLASLt, then the epilogue kernel
  kFallback,      // the fallback kernel
};

// A GEMM as cuBLASLt takes it, whose matrix A is W and whose B is A, because it is column-major.
struct GemmDescriptors {
  cublasLtMatmulDescOpaque_t matmul;
  cublasLtMatrixLayoutOpaque_t w, a, c, d;
};

struct GemmEntry {
  GemmKey key;
  GemmPath path = GemmPath::kUnplanned;
  GemmDescriptors descriptors;
  cublasLtMatmulAlgo_t algo;
  // Of its kernel, verified when an SM budget is asked for, which cuBLASLt takes as a hint only;
  // 0: not known.
  uint32_t blocks = 0;
};

// A fixed-size, set-associative table. One thread at a time; any thread may read the counters.
class GemmCache {
 public:
  GemmCache() : entries_(kSets * kWays) {}
  GemmCache(const GemmCache&) = delete;
  GemmCache& operator=(const GemmCache&) = delete;

  // The entry of `key`. If it was not there, the set's oldest entry makes room and has path
  // kUnplanned. Stays valid until the next call.
  GemmEntry& Find(const GemmKey& key);
  // The planned entry of `key`, null if there is none. Counts and changes nothing.
  const GemmEntry* Peek(const GemmKey& key) const;

  // Launches whose entry was there, launches planned anew, and plans whose wanted variant
  // cuBLASLt no longer offers or accepts.
  uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }
  uint64_t misses() const { return misses_.load(std::memory_order_relaxed); }
  uint64_t stale() const { return stale_.load(std::memory_order_relaxed); }
  void CountStale() { Increment(stale_); }

 private:
  // Only the launching thread writes, so that no read-modify-write is needed; relaxed, because no
  // other memory is published by a counter.
  static void Increment(std::atomic<uint64_t>& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // 1024 problems: some 30 shapes of a model x 30 batch sizes. 0.75 MB.
  static constexpr size_t kSets = 256;
  static constexpr size_t kWays = 4;

  static size_t SetOf(const GemmKey& key);
  const GemmEntry* FindIn(size_t set, const GemmKey& key) const;

  std::vector<GemmEntry> entries_;
  std::array<uint8_t, kSets> next_victim_{};
  std::atomic<uint64_t> hits_{0}, misses_{0}, stale_{0};
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GEMM_GEMM_CACHE_H_
