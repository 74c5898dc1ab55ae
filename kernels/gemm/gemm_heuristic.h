// What cuBLASLt's heuristic offers for a GEMM.
#ifndef CONCERT_KERNELS_GEMM_GEMM_HEURISTIC_H_
#define CONCERT_KERNELS_GEMM_GEMM_HEURISTIC_H_

#include <cublasLt.h>

#include <cstdint>
#include <span>

#include "kernels/cuda_api/cublaslt.h"
#include "kernels/gemm/gemm_cache.h"

namespace concert::kernels::cuda {

// Host work only: no kernel runs and no workspace is touched. cuBLASLt's handles may be used by
// several threads at once; a tuner uses its own all the same, so that it shares nothing with the
// thread that launches. REQUIRES: the GPU's context is current.
class GemmHeuristic {
 public:
  // `workspace_bytes`: the most that an algorithm may use.
  GemmHeuristic(const CublasLt& lt, cublasLtHandle_t handle, uint64_t workspace_bytes)
      : lt_(lt), handle_(handle), workspace_bytes_(workspace_bytes) {}

  // Describes the GEMM of `key` with `epilogue` to cuBLASLt, for kernels that use `sm_target` SMs
  // (SM_COUNT_TARGET; 0: all), all but its addresses: those of bias and scales are for the caller
  // to set. Not success where cuBLASLt cannot express it, or has no kernel for fp8 operands that
  // lie so.
  cublasStatus_t Describe(const GemmKey& key, cublasLtEpilogue_t epilogue, int sm_target,
                          GemmDescriptors& descriptors) const;

  // The usable ones among the first results.size() candidates for what Describe() described, best
  // first. Sums that are split along K meet in fp32 and in a fixed order only. Returns how many,
  // 0 if cuBLASLt has none.
  int Candidates(const GemmKey& key, GemmDescriptors& descriptors,
                 std::span<cublasLtMatmulHeuristicResult_t> results) const;

  // Whether cuBLASLt accepts `algo` for these descriptors within the workspace.
  bool Accepts(GemmDescriptors& descriptors, const cublasLtMatmulAlgo_t& algo) const;

 private:
  const CublasLt& lt_;
  const cublasLtHandle_t handle_;
  const uint64_t workspace_bytes_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GEMM_GEMM_HEURISTIC_H_
