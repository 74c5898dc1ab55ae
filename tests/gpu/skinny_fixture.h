// The skinny kernel by itself: a context to launch it with.
#ifndef CONCERT_TESTS_GPU_SKINNY_FIXTURE_H_
#define CONCERT_TESTS_GPU_SKINNY_FIXTURE_H_

#include <memory>

#include "kernels/gemm/gemm_cache.h"
#include "kernels/skinny/skinny_launcher.h"
#include "tests/gpu/gpu_fixture.h"

namespace concert::test {

class GpuSkinnyTestBase : public GpuTest {
 protected:
  static constexpr policies::Lane kLane = 3;
  static constexpr uint64_t kWorkspaceBytes = 32 << 20;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().kernel_table().skinny[0] == nullptr)
      GTEST_SKIP() << "no skinny kernel for this GPU";
    absl::StatusOr<kernels::cuda::CudaApi> api =
        kernels::cuda::LoadCudaApi(kernels::cuda::HardwareQueues::kDefault);
    ASSERT_OK(api.status());
    api_ = std::make_unique<kernels::cuda::CudaApi>(*std::move(api));
    ASSERT_EQ(api_->driver.cuCtxSetCurrent(device().context()), CUDA_SUCCESS);
    ASSERT_EQ(api_->cublaslt.cublasLtCreate(&cublaslt_), CUBLAS_STATUS_SUCCESS);
    workspace_ = std::make_unique<HostMirror>(device(), kWorkspaceBytes, 0);
    cache_ = std::make_unique<kernels::cuda::GemmCache>();
  }
  void TearDown() override {
    if (cublaslt_ != nullptr) api_->cublaslt.cublasLtDestroy(cublaslt_);
    workspace_.reset();
  }

  // On kLane's stream.
  kernels::cuda::LaunchContext Context() {
    return {.api = *api_,
            .kernels = device().kernel_table(),
            .cublaslt = cublaslt_,
            .gemm_cache = *cache_,
            .gpu = 0,
            .stream = device().stream(kLane),
            .workspace = workspace_->address(),
            .workspace_bytes = kWorkspaceBytes,
            .sm_budget = 0};
  }

  std::unique_ptr<kernels::cuda::CudaApi> api_;
  cublasLtHandle_t cublaslt_ = nullptr;
  std::unique_ptr<HostMirror> workspace_;
  std::unique_ptr<kernels::cuda::GemmCache> cache_;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_SKINNY_FIXTURE_H_
