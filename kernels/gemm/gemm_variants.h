// cuBLASLt's algorithms as variants: each described by what it is, listed for tuning and found
// again.
//
// A variant's tile and cluster count in concert's orientation: m along the rows of A and D, n along
// the rows of W. cuBLASLt, which is column-major, names them the other way round (its
// CUBLASLT_MATMUL_TILE_128x256 is tile_m 256, tile_n 128). The ids are cuBLASLt's own.
#ifndef CONCERT_KERNELS_GEMM_GEMM_VARIANTS_H_
#define CONCERT_KERNELS_GEMM_GEMM_VARIANTS_H_

#include <cublasLt.h>

#include <vector>

#include "kernels/cuda_api/cublaslt.h"
#include "kernels/gemm/gemm_heuristic.h"
#include "kernels/gemm/variant_name.h"
#include "policies/cost/tuned_table.h"
#include "policies/seam/variant.h"

namespace concert::kernels::cuda {

// The most variants that are listed for one problem and budget, and so the depth to which the
// heuristic's list is searched for a variant. As many, at three targets, made kernels chosen in
// co-run sets 1.11x as fast as the heuristic's first on an H200 (geomean of 54 cases on streams).
inline constexpr int kMaxVariants = 24;

// What `algo`, offered for `dtype` at SM_COUNT_TARGET `sm_target`, is. Fields that this cuBLASLt
// does not tell, or that it numbers in a way unknown when concert was built, are 0.
policies::Variant DescribeAlgo(const CublasLt& lt, const cublasLtMatmulAlgo_t& algo, Dtype dtype,
                               int sm_target);

// What the heuristic offers for `problem` on `sm_budget` of `sm_count` SMs (0: all), with
// contiguous operands aligned to 256 bytes and without epilogue (fp8: into bf16, all scales 1),
// best first: at SM_COUNT_TARGET sm_budget, and for budget 0 also at a half and a quarter of the
// SMs, since kernels that leave room do better beside others. No two are equal. Empty if cuBLASLt
// has no kernel for the problem or the problem is none (a dimension of 0, or beyond what an op may
// have).
// Any thread whose current context is the GPU's; see GemmHeuristic.
std::vector<policies::Variant> ListVariants(const CublasLt& lt, const GemmHeuristic& heuristic,
                                            int sm_count, const policies::Problem& problem,
                                            int sm_budget);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GEMM_GEMM_VARIANTS_H_
