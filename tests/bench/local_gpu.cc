#include "tests/bench/local_gpu.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda_api/cuda_api.h"
#include "kernels/cuda_api/data_type.h"

// What timing and graphs need beyond kernels/cuda_api/driver.h.
#define CONCERT_BENCH_DRIVER_FUNCTIONS(X) \
  X(cuStreamCreate)                       \
  X(cuStreamBeginCapture)                 \
  X(cuStreamEndCapture)                   \
  X(cuGraphInstantiateWithFlags)          \
  X(cuGraphLaunch) X(cuGraphDestroy) X(cuGraphExecDestroy) X(cuEventElapsedTime)
#define CONCERT_BENCH_QUOTE(text) #text

namespace concert::bench {
namespace {

using kernels::cuda::CudaApi;
using kernels::cuda::SharedLibrary;

constexpr uint64_t kWorkspaceBytes = 32 << 20;  // what NVIDIA recommends for Hopper
constexpr int kMaxStreams = 16;
constexpr int kMinBatchesPerGraph = 16;  // so that the gap between two replays does not count

struct TimingApi {
#define X(name) decltype(&::name) name = nullptr;
  CONCERT_BENCH_DRIVER_FUNCTIONS(X)
#undef X
  SharedLibrary library;

  static absl::StatusOr<TimingApi> Load() {
    absl::StatusOr<SharedLibrary> library = SharedLibrary::Open({"libcuda.so.1"});
    if (!library.ok()) return library.status();
    TimingApi api;
    api.library = *std::move(library);
#define X(name)                                                                       \
  if (absl::Status status = api.library.Resolve(CONCERT_BENCH_QUOTE(name), api.name); \
      !status.ok())                                                                   \
    return status;
    CONCERT_BENCH_DRIVER_FUNCTIONS(X)
#undef X
    return api;
  }
};

// Everything a run needs; owned by the LocalGpu.
struct Context {
  CudaApi api;
  TimingApi timing;
  CUdevice device = 0;
  CUcontext context = nullptr;
  cublasLtHandle_t cublaslt = nullptr;
  std::array<CUstream, kMaxStreams> streams{};
  std::array<CUevent, kMaxStreams> joins{};
  std::array<CUdeviceptr, kMaxStreams> workspaces{};
  CUevent begin = nullptr, end = nullptr;

  absl::Status Check(CUresult result, const char* call) const {
    return api.driver.ToStatus(result, call, 0);
  }
};

#define CONCERT_BENCH_RETURN_IF_ERROR(context, table, function, ...)       \
  do {                                                                     \
    absl::Status concert_status =                                          \
        (context).Check((context).table.function(__VA_ARGS__), #function); \
    if (!concert_status.ok()) return concert_status;                       \
  } while (false)

// One shape's descriptors and kernel. cuBLASLt is column-major: row-major D = A W^T is there D^T =
// W A^T, with W [n,k] read as a k by n matrix, transposed.
class LtGemm {
 public:
  static absl::StatusOr<LtGemm> Plan(const Context& context, const GemmShape& shape) {
    LtGemm gemm;
    const auto& lt = context.api.cublaslt;
    const cudaDataType_t type = kernels::cuda::DataTypeOf(shape.dtype);
    const cudaDataType_t d_type = kernels::cuda::DataTypeOf(shape.d_dtype());
    gemm.scaled_ = shape.dtype == Dtype::kFp8E4m3;
    const cublasOperation_t transpose = CUBLAS_OP_T;
    cublasLtMatmulPreferenceOpaque_t preference;
    lt.cublasLtMatmulDescInit_internal(&gemm.matmul_, sizeof(gemm.matmul_), CUBLAS_COMPUTE_32F,
                                       CUDA_R_32F);
    lt.cublasLtMatmulDescSetAttribute(&gemm.matmul_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                      sizeof(transpose));
    lt.cublasLtMatrixLayoutInit_internal(&gemm.w_, sizeof(gemm.w_), type, shape.k, shape.n,
                                         shape.k);
    lt.cublasLtMatrixLayoutInit_internal(&gemm.a_, sizeof(gemm.a_), type, shape.k, shape.m,
                                         shape.k);
    lt.cublasLtMatrixLayoutInit_internal(&gemm.d_, sizeof(gemm.d_), d_type, shape.n, shape.m,
                                         shape.n);
    lt.cublasLtMatmulPreferenceInit_internal(&preference, sizeof(preference));
    lt.cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &kWorkspaceBytes, sizeof(kWorkspaceBytes));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        lt.cublasLtMatmulAlgoGetHeuristic(context.cublaslt, &gemm.matmul_, &gemm.w_, &gemm.a_,
                                          &gemm.d_, &gemm.d_, &preference, 1, &result, &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
      return absl::NotFoundError(
          absl::StrCat("cuBLASLt has no kernel for ", shape.m, "x", shape.n, "x", shape.k));
    }
    gemm.algorithm_ = result.algo;
    return gemm;
  }

  absl::Status Enqueue(const Context& context, uint64_t memory, const GemmPlace& place,
                       int stream) {
    const float one = 1, zero = 0;
    const auto pointer = [&](uint64_t offset) { return reinterpret_cast<void*>(memory + offset); };
    const auto& lt = context.api.cublaslt;
    if (scaled_) {
      const void* const w_scale = pointer(place.w_scales);
      const void* const a_scale = pointer(place.a_scales);
      lt.cublasLtMatmulDescSetAttribute(&matmul_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &w_scale,
                                        sizeof(w_scale));
      lt.cublasLtMatmulDescSetAttribute(&matmul_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a_scale,
                                        sizeof(a_scale));
    }
    return lt.ToStatus(
        lt.cublasLtMatmul(context.cublaslt, &matmul_, &one, pointer(place.w), &w_, pointer(place.a),
                          &a_, &zero, pointer(place.d), &d_, pointer(place.d), &d_, &algorithm_,
                          reinterpret_cast<void*>(context.workspaces[stream]), kWorkspaceBytes,
                          context.streams[stream]),
        "cublasLtMatmul", 0);
  }

 private:
  cublasLtMatmulDescOpaque_t matmul_{};
  cublasLtMatrixLayoutOpaque_t w_{}, a_{}, d_{};
  cublasLtMatmulAlgo_t algorithm_{};
  bool scaled_ = false;  // fp8: one scale of A and one of W
};

class GraphRun : public LocalRun {
 public:
  GraphRun(const Context& context, CUgraphExec graph, int batches)
      : context_(context), graph_(graph), batches_(batches) {}
  ~GraphRun() override { context_.timing.cuGraphExecDestroy(graph_); }

  absl::StatusOr<double> Run(int batches) override {
    const int replays = (batches + batches_ - 1) / batches_;
    const CUstream stream = context_.streams[0];
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuCtxSetCurrent, context_.context);
    CONCERT_BENCH_RETURN_IF_ERROR(context_, timing, cuGraphLaunch, graph_,
                                  stream);  // fills the pipeline
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuEventRecord, context_.begin, stream);
    for (int i = 0; i < replays; ++i)
      CONCERT_BENCH_RETURN_IF_ERROR(context_, timing, cuGraphLaunch, graph_, stream);
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuEventRecord, context_.end, stream);
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuStreamSynchronize, stream);
    float milliseconds = 0;
    CONCERT_BENCH_RETURN_IF_ERROR(context_, timing, cuEventElapsedTime, &milliseconds,
                                  context_.begin, context_.end);
    return milliseconds * 1000.0 / (1.0 * replays * batches_);
  }

 private:
  const Context& context_;
  CUgraphExec graph_;
  int batches_;
};

class CudaGpu : public LocalGpu {
 public:
  explicit CudaGpu(Context context) : context_(std::move(context)) {}
  ~CudaGpu() override;

  absl::StatusOr<std::unique_ptr<LocalRun>> Record(const GemmWorkload& workload, uint64_t memory,
                                                   Form form) override;
  Versions versions() const override;
  absl::Status Prepare();

 private:
  absl::Status Enqueue(const GemmWorkload& workload, uint64_t memory, int streams, int batches,
                       std::vector<LtGemm>& gemms);

  Context context_;
};

CudaGpu::~CudaGpu() {
  const auto& driver = context_.api.driver;
  driver.cuCtxSetCurrent(context_.context);
  if (context_.cublaslt != nullptr) context_.api.cublaslt.cublasLtDestroy(context_.cublaslt);
  for (int i = 0; i < kMaxStreams; ++i) {
    if (context_.streams[i] != nullptr) driver.cuStreamDestroy(context_.streams[i]);
    if (context_.joins[i] != nullptr) driver.cuEventDestroy(context_.joins[i]);
    if (context_.workspaces[i] != 0) driver.cuMemFree(context_.workspaces[i]);
  }
  if (context_.begin != nullptr) driver.cuEventDestroy(context_.begin);
  if (context_.end != nullptr) driver.cuEventDestroy(context_.end);
  driver.cuDevicePrimaryCtxRelease(context_.device);
}

absl::Status CudaGpu::Prepare() {
  const auto& lt = context_.api.cublaslt;
  absl::Status status = lt.ToStatus(lt.cublasLtCreate(&context_.cublaslt), "cublasLtCreate", 0);
  if (!status.ok()) return status;
  for (int i = 0; i < kMaxStreams; ++i) {
    CONCERT_BENCH_RETURN_IF_ERROR(context_, timing, cuStreamCreate, &context_.streams[i],
                                  CU_STREAM_NON_BLOCKING);
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuEventCreate, &context_.joins[i],
                                  CU_EVENT_DISABLE_TIMING);
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuMemAlloc, &context_.workspaces[i],
                                  kWorkspaceBytes);
  }
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuEventCreate, &context_.begin,
                                CU_EVENT_DEFAULT);
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuEventCreate, &context_.end,
                                CU_EVENT_DEFAULT);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LocalRun>> CudaGpu::Record(const GemmWorkload& workload,
                                                          uint64_t memory, Form form) {
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuCtxSetCurrent, context_.context);
  std::vector<LtGemm> gemms;
  for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
    absl::StatusOr<LtGemm> planned = LtGemm::Plan(context_, workload.shape(gemm));
    if (!planned.ok()) return planned.status();
    gemms.push_back(*planned);
  }
  const int streams = form == Form::kSerial ? 1 : std::min(workload.gemms(), kMaxStreams);
  // Whole rounds of the operand sets, so that every set is computed.
  const int rounds = (kMinBatchesPerGraph + workload.sets() - 1) / workload.sets();
  const int batches = rounds * workload.sets();

  CUgraph graph = nullptr;
  CONCERT_BENCH_RETURN_IF_ERROR(context_, timing, cuStreamBeginCapture, context_.streams[0],
                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  const absl::Status enqueued = Enqueue(workload, memory, streams, batches, gemms);
  const absl::Status ended = context_.Check(
      context_.timing.cuStreamEndCapture(context_.streams[0], &graph), "cuStreamEndCapture");
  const absl::Cleanup destroy = [&] {
    if (graph != nullptr) context_.timing.cuGraphDestroy(graph);
  };
  if (!enqueued.ok()) return enqueued;
  if (!ended.ok()) return ended;
  CUgraphExec executable = nullptr;
  CONCERT_BENCH_RETURN_IF_ERROR(context_, timing, cuGraphInstantiateWithFlags, &executable, graph,
                                0);
  return std::make_unique<GraphRun>(context_, executable, batches);
}

// Streams are forked once and joined once: batches follow each other on each stream, as on
// concert's queues.
absl::Status CudaGpu::Enqueue(const GemmWorkload& workload, uint64_t memory, int streams,
                              int batches, std::vector<LtGemm>& gemms) {
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuEventRecord, context_.joins[0],
                                context_.streams[0]);
  for (int i = 1; i < streams; ++i) {
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuStreamWaitEvent, context_.streams[i],
                                  context_.joins[0], 0);
  }
  for (int batch = 0; batch < batches; ++batch) {
    for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
      const GemmPlace& place = workload.place(batch % workload.sets(), gemm);
      absl::Status status = gemms[gemm].Enqueue(context_, memory, place, gemm % streams);
      if (!status.ok()) return status;
    }
  }
  for (int i = 1; i < streams; ++i) {
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuEventRecord, context_.joins[i],
                                  context_.streams[i]);
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuStreamWaitEvent, context_.streams[0],
                                  context_.joins[i], 0);
  }
  return absl::OkStatus();
}

std::string Dotted(int64_t version, int64_t major_unit, int64_t minor_unit) {
  return absl::StrCat(version / major_unit, ".", version % major_unit / minor_unit);
}

LocalGpu::Versions CudaGpu::versions() const {
  Versions versions;
  int cuda = 0, nccl = 0;
  if (context_.api.driver.cuDriverGetVersion(&cuda) == CUDA_SUCCESS)
    versions.cuda = Dotted(cuda, 1000, 10);
  const size_t cublas = context_.api.cublaslt.cublasLtGetVersion();  // 130100
  versions.cublas = absl::StrCat(Dotted(cublas, 10000, 100), ".", cublas % 100);
  if (context_.api.nccl && context_.api.nccl->ncclGetVersion(&nccl) == 0) {  // 22803
    versions.nccl = absl::StrCat(Dotted(nccl, 10000, 100), ".", nccl % 100);
  }
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; versions.driver.empty() && file >> word;) {
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos) {
      versions.driver = word;
    }
  }
  return versions;
}

absl::StatusOr<CUdevice> DeviceWithUuid(const Context& context,
                                        const std::array<uint8_t, 16>& uuid) {
  int count = 0;
  CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuDeviceGetCount, &count);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    CUuuid candidate{};
    CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuDeviceGet, &device, ordinal);
    CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuDeviceGetUuid, &candidate, device);
    if (std::memcmp(candidate.bytes, uuid.data(), uuid.size()) == 0) return device;
  }
  return absl::NotFoundError("this process does not see the daemon's GPU (CUDA_VISIBLE_DEVICES?)");
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGpu>> LocalGpu::Open(const std::array<uint8_t, 16>& uuid) {
  absl::StatusOr<CudaApi> api = kernels::cuda::LoadCudaApi();
  if (!api.ok()) return api.status();
  absl::StatusOr<TimingApi> timing = TimingApi::Load();
  if (!timing.ok()) return timing.status();
  Context context{.api = *std::move(api), .timing = *std::move(timing)};
  absl::StatusOr<CUdevice> device = DeviceWithUuid(context, uuid);
  if (!device.ok()) return device.status();
  context.device = *device;
  CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuDevicePrimaryCtxRetain, &context.context,
                                *device);
  CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuCtxSetCurrent, context.context);
  auto gpu = std::make_unique<CudaGpu>(std::move(context));
  if (absl::Status prepared = gpu->Prepare(); !prepared.ok()) return prepared;
  return gpu;
}

}  // namespace concert::bench
