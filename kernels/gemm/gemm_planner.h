// Decides how cuBLASLt runs a GEMM that was not seen before, and hands one to it.
#ifndef CONCERT_KERNELS_GEMM_GEMM_PLANNER_H_
#define CONCERT_KERNELS_GEMM_GEMM_PLANNER_H_

#include "kernels/cuda_api/launch_context.h"
#include "kernels/gemm/gemm_cache.h"
#include "kernels/op.h"
#include "policies/seam/variant.h"

namespace concert::kernels::cuda {

// What one cublasLtMatmul works on. With GemmKey::pointer_array the addresses are those of arrays
// of addresses, on the device.
struct MatmulOperands {
  Address w, a, c, d;
  Address bias;                // 0: none
  Address a_scales, w_scales;  // fp8's; 0: the scale is 1
  float alpha, beta;

  static MatmulOperands Of(const GemmArgs& args) {
    const Address c = args.beta != 0.0f ? args.c : args.d;
    return {args.w,        args.a,        c,          args.d,   args.bias,
            args.a_scales, args.w_scales, args.alpha, args.beta};
  }
};

// The variant that this op is to be run with: the context's own, else that of the tuned row for the
// op, budget, degree and form; source kNone if there is none of cuBLASLt's. Allocates nothing.
policies::Variant WantedVariant(const LaunchContext& context, const GemmArgs& args);

// Fills in `entry`, whose key is set.
//
// A wanted variant is looked for among what the heuristic offers now, at the variant's SM target,
// and cuBLASLt has to accept it for these operands and this workspace; nothing that a table says
// about it is believed. Otherwise the heuristic's first serves, and the cache counts a stale plan.
// Where an SM budget is asked for, the grids of the chosen algorithm and, while they are too large,
// of those behind it are verified; if none keeps to the budget, the chosen one stays.
//
// Host work of some 50 us, with a budget or a variant a few hundred; nothing runs on the GPU.
void PlanGemm(LaunchContext& context, const MatmulOperands& operands, GemmEntry& entry);

// Enqueues the library's part of a planned entry on `stream`. REQUIRES: kFused or kThenEpilogue.
cublasStatus_t EnqueueMatmul(const LaunchContext& context, const MatmulOperands& operands,
                             GemmEntry& entry, CUstream stream);

// Whether cublasLtMatmul's `status` says that it launched nothing because it cannot run this.
constexpr bool IsRefusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GEMM_GEMM_PLANNER_H_
