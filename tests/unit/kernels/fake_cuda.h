// A CUDA driver and a cuBLASLt that run nothing: tables of functions that keep what they were told,
// so that what decides about launches can be tested on any machine.
#ifndef CONCERT_TESTS_UNIT_KERNELS_FAKE_CUDA_H_
#define CONCERT_TESTS_UNIT_KERNELS_FAKE_CUDA_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "kernels/attention_decode/attention_kernel_args.h"
#include "kernels/cuda_api/cuda_api.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/gemm/gemm_cache.h"
#include "kernels/gemm/gemm_kernel_args.h"
#include "kernels/skinny/skinny_args.h"
#include "kernels/step/step_args.h"
#include "kernels/strided_range.h"
#include "policies/seam/lanes.h"

namespace concert::test {

// One algorithm of the fake library.
struct FakeAlgo {
  int32_t id = 66;
  uint32_t tile = 23, stages = 35, swizzle = 0, custom = 0;  // 128x256, 64xAUTO
  uint16_t cluster = 3;                                      // 2x1x1
  int32_t split = 1;
  uint32_t blocks = 132;
  uint64_t workspace = 0;
  cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
  cublasStatus_t check = CUBLAS_STATUS_SUCCESS;
};

// A captured launch that copies bindings.
struct FakeCopies {
  size_t behind = 0;            // so many captured GEMMs
  std::vector<CUdeviceptr> to;  // of the executable
};

// A copy within the device. `behind`: those, by place, that have ended when it begins.
struct FakeCopy {
  kernels::ByteRange from, to;
  std::set<size_t> behind;
};

struct FakeLaunch {
  int32_t algo_id = 0;
  CUstream stream = nullptr;
  int sm_target = 0;
  int batch = 1;
  bool pointer_array = false;
  uint64_t w = 0, a = 0, c = 0, d = 0;
  uint64_t w_scales = 0, a_scales = 0;
  float alpha = 0, beta = 0;
  uint64_t workspace = 0, workspace_bytes = 0;
};

// What the heuristic was asked about.
struct FakeQuestion {
  cudaDataType_t w_type = CUDA_R_32F, a_type = CUDA_R_32F, c_type = CUDA_R_32F, d_type = CUDA_R_32F;
  uint64_t w_scales = 0, a_scales = 0;
  int w_scale_mode = 0, a_scale_mode = 0;
};

// What the tables of `Api()` act on. One at a time.
class FakeCuda {
 public:
  static constexpr uint64_t kWorkspaceBytes = 1 << 20;

  FakeCuda();
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  const kernels::cuda::CudaApi& api() const { return api_; }
  // A launch on `lane` with a cache of the fake's.
  kernels::cuda::LaunchContext Context(policies::Lane lane = 0);
  kernels::cuda::GemmCache& cache() { return cache_; }
  static CUstream StreamOf(policies::Lane lane) {
    return reinterpret_cast<CUstream>(uintptr_t{100} + lane);
  }
  static CUfunction CopyBindings() { return reinterpret_cast<CUfunction>(uintptr_t{98}); }
  static CUfunction EpilogueOfSums() { return reinterpret_cast<CUfunction>(uintptr_t{97}); }
  static CUfunction Skinny() { return reinterpret_cast<CUfunction>(uintptr_t{95}); }
  static CUfunction AttentionDecode() { return reinterpret_cast<CUfunction>(uintptr_t{94}); }
  static CUfunction Rows() { return reinterpret_cast<CUfunction>(uintptr_t{92}); }
  static CUfunction Step() { return reinterpret_cast<CUfunction>(uintptr_t{93}); }
  static CUfunction FallbackGemm() { return reinterpret_cast<CUfunction>(uintptr_t{96}); }
  static CUstream ProbeStream() { return reinterpret_cast<CUstream>(uintptr_t{99}); }

  // From now on it is a GPU that has the skinny kernel.
  void AddSkinny() { kernels_.skinny.fill(Skinny()); }
  // The same of the step kernel.
  void AddStep() { kernels_.step.fill(Step()); }

  // What the heuristic offers, by SM_COUNT_TARGET; targets without a list get that of 0.
  std::map<int, std::vector<FakeAlgo>> offers;
  std::set<int> epilogues = {CUBLASLT_EPILOGUE_DEFAULT};  // that some kernel can fuse
  bool pointer_arrays = true;
  bool captures_work = true;
  cublasStatus_t matmul_status = CUBLAS_STATUS_SUCCESS;

  int heuristic_calls = 0;
  FakeQuestion question;             // the last
  std::vector<FakeLaunch> launches;  // that were not captured
  std::vector<FakeLaunch> captured;
  std::vector<FakeCopies> captured_copies;  // nodes, by number
  CUresult set_status = CUDA_SUCCESS;       // of parameters of nodes
  int kernels_launched = 0;                 // concert's own
  std::vector<kernels::cuda::SumsArgs> epilogues_of_sums;
  std::vector<kernels::GemmArgs> fallbacks;
  std::vector<kernels::cuda::SkinnyArgs> skinny;
  std::vector<kernels::cuda::AttentionKernelArgs> attention;
  std::vector<bool> rows_line_up;  // of its launches: each may begin before the one ahead has ended
  std::vector<kernels::cuda::StepArgs> steps;
  std::vector<unsigned> step_blocks;
  std::set<CUevent> unfinished;  // recorded, and what they wait for goes on
  CUevent recorded = nullptr;    // the last
  std::vector<CUevent> awaited;  // by streams
  int events_queried = 0;
  std::vector<uint64_t> device;  // where cuMemAlloc's memory really is
  // Of memory elsewhere, which there is none of: what was set, and what was copied there.
  std::vector<kernels::ByteRange> set, uploaded;

  // The driver's state.
  CUstream capturing = nullptr;
  uint32_t captured_blocks = 0;
  int live_graphs = 0;
  int live_executables = 0;
  // Copies within the device, also by graphs, and launches of graphs, in their order: destination,
  // or 0 for what a graph has between its copies.
  std::vector<CUdeviceptr> enqueued;
  std::vector<FakeCopy> copies;
  std::map<CUstream, std::set<size_t>> behind_stream;  // copies that it waits for
  std::map<CUevent, std::set<size_t>> behind_event;
  uintptr_t next_stream = 1000;
  uintptr_t next_event = 1;

 private:
  kernels::cuda::CudaApi api_;
  kernels::cuda::KernelTable kernels_;
  kernels::cuda::GemmCache cache_;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_UNIT_KERNELS_FAKE_CUDA_H_
