#include "tests/bench/local_library.h"

#include <cublas_v2.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_api/data_type.h"

namespace concert::bench::local {

// Written out where cublas_v2.h overloads the name for older compute types.
struct Cublas::Table {
  kernels::cuda::SharedLibrary library;
  cublasStatus_t (*create)(cublasHandle_t*) = nullptr;
  cublasStatus_t (*destroy)(cublasHandle_t) = nullptr;
  cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t) = nullptr;
  cublasStatus_t (*set_workspace)(cublasHandle_t, void*, size_t) = nullptr;
  cublasStatus_t (*gemm_batched)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                                 int k, const void* alpha, const void* const a[], cudaDataType,
                                 int lda, const void* const b[], cudaDataType, int ldb,
                                 const void* beta, void* const c[], cudaDataType, int ldc,
                                 int batch_count, cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  decltype(&::cublasGemmGroupedBatchedEx) gemm_grouped = nullptr;
};

Cublas::Cublas(std::unique_ptr<Table> table) : table_(std::move(table)) {}

absl::StatusOr<std::unique_ptr<Cublas>> Cublas::Open(const Context& context) {
  auto table = std::make_unique<Table>();
  absl::StatusOr<kernels::cuda::SharedLibrary> library =
      kernels::cuda::SharedLibrary::Open({"libcublas.so.13", "libcublas.so.12"});
  if (!library.ok()) return absl::NotFoundError(library.status().message());
  table->library = *std::move(library);
  for (const absl::Status& status :
       {table->library.Resolve("cublasCreate_v2", table->create),
        table->library.Resolve("cublasDestroy_v2", table->destroy),
        table->library.Resolve("cublasSetStream_v2", table->set_stream),
        table->library.Resolve("cublasSetWorkspace_v2", table->set_workspace),
        table->library.Resolve("cublasGemmBatchedEx", table->gemm_batched),
        table->library.Resolve("cublasGemmGroupedBatchedEx", table->gemm_grouped)}) {
    if (!status.ok()) return absl::NotFoundError(status.message());
  }
  std::unique_ptr<Cublas> cublas(new Cublas(std::move(table)));
  cublasHandle_t handle = nullptr;
  if (cublas->table_->create(&handle) != CUBLAS_STATUS_SUCCESS)
    return absl::NotFoundError("cublasCreate failed");
  cublas->handle_ = handle;
  // In this order: setting the stream resets the workspace.
  if (cublas->table_->set_stream(handle, context.streams[0]) != CUBLAS_STATUS_SUCCESS ||
      cublas->table_->set_workspace(handle, reinterpret_cast<void*>(context.workspaces[0]),
                                    kWorkspaceBytes) != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError("cuBLAS takes no stream or no workspace");
  }
  return cublas;
}

Cublas::~Cublas() {
  if (handle_ != nullptr) table_->destroy(static_cast<cublasHandle_t>(handle_));
}

LibraryGroup::LibraryGroup(const Context& context, const Cublas& cublas,
                           const GemmWorkload& workload)
    : context_(context), cublas_(cublas), workload_(workload) {
  for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
    const GemmShape& shape = workload.shape(gemm);
    const bool as_before = !groups_.m.empty() && groups_.m.back() == static_cast<int>(shape.n) &&
                           groups_.n.back() == static_cast<int>(shape.m) &&
                           groups_.k.back() == static_cast<int>(shape.k);
    if (as_before) {
      ++groups_.size.back();
      continue;
    }
    groups_.m.push_back(static_cast<int>(shape.n));
    groups_.n.push_back(static_cast<int>(shape.m));
    groups_.k.push_back(static_cast<int>(shape.k));
    groups_.size.push_back(1);
  }
}

absl::StatusOr<std::unique_ptr<LibraryGroup>> LibraryGroup::Make(const Context& context,
                                                                 const Cublas& cublas,
                                                                 const GemmWorkload& workload,
                                                                 uint64_t memory) {
  if (workload.shape(0).has_scales())
    return absl::NotFoundError("cuBLAS's batched and grouped GEMMs take no scales, so no fp8");
  for (int gemm = 1; gemm < workload.gemms(); ++gemm) {
    if (workload.shape(gemm).dtype != workload.shape(0).dtype)
      return absl::NotFoundError("cuBLAS takes GEMMs of one dtype in a launch");
  }
  std::unique_ptr<LibraryGroup> group(new LibraryGroup(context, cublas, workload));
  if (absl::Status uploaded = group->Upload(memory); !uploaded.ok()) return uploaded;
  // The first use of a kernel loads it, which a capture had better not see.
  if (absl::Status ran = group->Enqueue(0); !ran.ok()) return ran;
  CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuStreamSynchronize, context.streams[0]);
  return group;
}

LibraryGroup::~LibraryGroup() {
  if (pointers_ != 0) context_.api.driver.cuMemFree(pointers_);
}

absl::Status LibraryGroup::Upload(uint64_t memory) {
  std::vector<uint64_t> pointers;
  for (int set = 0; set < workload_.sets(); ++set) {
    for (uint64_t GemmPlace::*operand : {&GemmPlace::w, &GemmPlace::a, &GemmPlace::d}) {
      for (int gemm = 0; gemm < workload_.gemms(); ++gemm)
        pointers.push_back(memory + workload_.place(set, gemm).*operand);
    }
  }
  const uint64_t bytes = pointers.size() * sizeof(pointers[0]);
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuMemAlloc, &pointers_, bytes);
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuMemcpyHtoDAsync, pointers_, pointers.data(),
                                bytes, context_.streams[0]);
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuStreamSynchronize, context_.streams[0]);
  return absl::OkStatus();
}

absl::Status LibraryGroup::Enqueue(int set) const {
  const int gemms = workload_.gemms();
  const auto array = [&](int operand) {
    return reinterpret_cast<void**>(pointers_ +
                                    sizeof(void*) * gemms * (3 * uint64_t(set) + operand));
  };
  const auto handle = static_cast<cublasHandle_t>(cublas_.handle_);
  const cudaDataType type = kernels::cuda::DataTypeOf(workload_.shape(0).dtype);
  const Groups& g = groups_;
  cublasStatus_t status;
  if (g.m.size() == 1) {
    const float one = 1, zero = 0;
    status = cublas_.table_->gemm_batched(handle, CUBLAS_OP_T, CUBLAS_OP_N, g.m[0], g.n[0], g.k[0],
                                          &one, array(0), type, g.k[0], array(1), type, g.k[0],
                                          &zero, array(2), type, g.m[0], gemms, CUBLAS_COMPUTE_32F,
                                          CUBLAS_GEMM_DEFAULT);
  } else {
    const std::vector<float> ones(g.m.size(), 1), zeros(g.m.size(), 0);
    const std::vector<cublasOperation_t> transposed(g.m.size(), CUBLAS_OP_T);
    const std::vector<cublasOperation_t> plain(g.m.size(), CUBLAS_OP_N);
    status = cublas_.table_->gemm_grouped(
        handle, transposed.data(), plain.data(), g.m.data(), g.n.data(), g.k.data(), ones.data(),
        array(0), type, g.k.data(), array(1), type, g.k.data(), zeros.data(), array(2), type,
        g.m.data(), static_cast<int>(g.m.size()), g.size.data(), CUBLAS_COMPUTE_32F);
  }
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("cuBLAS refuses the batch with status ", int(status)));
}

}  // namespace concert::bench::local
