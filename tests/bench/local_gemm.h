// GEMMs of this process with cuBLASLt.
#ifndef CONCERT_TESTS_BENCH_LOCAL_GEMM_H_
#define CONCERT_TESTS_BENCH_LOCAL_GEMM_H_

#include <map>
#include <tuple>
#include <vector>

#include "policies/seam/variant.h"
#include "tests/bench/gemm_workload.h"
#include "tests/bench/graph_launches.h"
#include "tests/bench/local_context.h"

namespace concert::bench::local {

// One shape's descriptors and kernel. cuBLASLt is column-major: row-major D = A W^T is there D^T =
// W A^T, with W [n,k] read as a k by n matrix, transposed.
class LtGemm {
 public:
  // With the first kernel of cuBLASLt's heuristic. NOT_FOUND when it knows none.
  static absl::StatusOr<LtGemm> Plan(const Context& context, const GemmShape& shape);
  // With each of its first kernels for this many SMs (SM_COUNT_TARGET; 0: all), at least one and at
  // most `count`.
  static absl::StatusOr<std::vector<LtGemm>> Candidates(const Context& context,
                                                        const GemmShape& shape, int sm_target,
                                                        int count);

  // `memory` is the device address of the range that `place` lies in.
  absl::Status Enqueue(const Context& context, uint64_t memory, const GemmPlace& place,
                       int stream) const;

 private:
  cublasLtMatmulDescOpaque_t matmul_{};
  cublasLtMatrixLayoutOpaque_t w_{}, a_{}, d_{};
  cublasLtMatmulAlgo_t algorithm_{};
  bool has_scales_ = false;  // fp8: one of A and one of W
};

// Gives the launches, each with its kernel, to the context's streams: those are forked from stream
// 0 before the first and joined to it behind the last, so that batches follow each other on each
// stream, as on concert's queues. Batch i works on set `first_set` + i.
absl::Status EnqueueAll(const Context& context, const GemmWorkload& workload, uint64_t memory,
                        int first_set, const std::vector<GraphLaunch>& launches,
                        const std::vector<LtGemm>& kernels);

// The kernel of the heuristic's that is fastest in a co-run set, found once per shape and degree:
// as many copies of the GEMM as it stands for run side by side, each on a stream of its own. Beside
// others that is what GOLDYLOC calls the globally optimised kernel (GO).
class LtTuner {
 public:
  // Times candidates on the operands of the workload's GEMMs of this shape, and leaves anything in
  // their outputs.
  absl::StatusOr<LtGemm> Fastest(const Context& context, const GemmWorkload& workload,
                                 uint64_t memory, int gemm, policies::Degree degree);

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, Dtype, policies::Degree>;
  std::map<Key, LtGemm> known_;
};

}  // namespace concert::bench::local

#endif  // CONCERT_TESTS_BENCH_LOCAL_GEMM_H_
