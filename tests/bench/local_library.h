// The library's own form of "several GEMMs in one launch": cuBLAS, opened at run time.
#ifndef CONCERT_TESTS_BENCH_LOCAL_LIBRARY_H_
#define CONCERT_TESTS_BENCH_LOCAL_LIBRARY_H_

#include <memory>
#include <vector>

#include "tests/bench/gemm_workload.h"
#include "tests/bench/local_context.h"

namespace concert::bench::local {

// cuBLAS with a handle on stream 0 and its workspace.
class Cublas {
 public:
  // NOT_FOUND where the library is not installed or has no grouped GEMM (before 12.5).
  static absl::StatusOr<std::unique_ptr<Cublas>> Open(const Context& context);
  ~Cublas();

 private:
  friend class LibraryGroup;
  struct Table;
  explicit Cublas(std::unique_ptr<Table> table);

  const std::unique_ptr<Table> table_;
  void* handle_ = nullptr;
};

// A workload's batches, one launch each: cublasGemmBatchedEx where all shapes are equal, else
// cublasGemmGroupedBatchedEx with a group for every run of equal shapes.
class LibraryGroup {
 public:
  // NOT_FOUND where the library takes no such batch: mixed dtypes, or fp8.
  static absl::StatusOr<std::unique_ptr<LibraryGroup>> Make(const Context& context,
                                                            const Cublas& cublas,
                                                            const GemmWorkload& workload,
                                                            uint64_t memory);
  ~LibraryGroup();

  // On stream 0. NOT_FOUND where the library has no kernel.
  absl::Status Enqueue(int set) const;

 private:
  // A run of equal shapes, as cuBLAS takes it: column-major, so that its m is our n.
  struct Groups {
    std::vector<int> m, n, k, size;
  };

  LibraryGroup(const Context& context, const Cublas& cublas, const GemmWorkload& workload);
  absl::Status Upload(uint64_t memory);

  const Context& context_;
  const Cublas& cublas_;
  const GemmWorkload& workload_;
  Groups groups_;
  CUdeviceptr pointers_ = 0;  // on the device: [set][w, a, d][gemm]
};

}  // namespace concert::bench::local

#endif  // CONCERT_TESTS_BENCH_LOCAL_LIBRARY_H_
