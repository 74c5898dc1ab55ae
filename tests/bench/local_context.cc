#include "tests/bench/local_context.h"

#include <cstring>

#include "absl/cleanup/cleanup.h"

#define CONCERT_BENCH_QUOTE(text) #text

namespace concert::bench::local {
namespace {

constexpr int kDefaultQueues = 8;

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

absl::StatusOr<TimingApi> TimingApi::Load() {
  absl::StatusOr<kernels::cuda::SharedLibrary> library =
      kernels::cuda::SharedLibrary::Open({"libcuda.so.1"});
  if (!library.ok()) return library.status();
  TimingApi api;
  api.library_ = *std::move(library);
#define X(name)                                                                        \
  if (absl::Status status = api.library_.Resolve(CONCERT_BENCH_QUOTE(name), api.name); \
      !status.ok())                                                                    \
    return status;
  CONCERT_BENCH_DRIVER_FUNCTIONS(X)
#undef X
  return api;
}

absl::StatusOr<std::unique_ptr<Context>> Context::Open(const std::array<uint8_t, 16>& uuid,
                                                       int streams, bool high_priority) {
  using kernels::cuda::HardwareQueues;
  // As a user's process has them, unless the streams need more.
  absl::StatusOr<kernels::cuda::CudaApi> api = kernels::cuda::LoadCudaApi(
      streams > kDefaultQueues ? HardwareQueues::kMost : HardwareQueues::kDefault);
  if (!api.ok()) return api.status();
  absl::StatusOr<TimingApi> timing = TimingApi::Load();
  if (!timing.ok()) return timing.status();
  auto context = std::make_unique<Context>();
  context->api = *std::move(api);
  context->timing = *std::move(timing);
  const absl::StatusOr<CUdevice> device = DeviceWithUuid(*context, uuid);
  if (!device.ok()) return device.status();
  context->device = *device;
  if (absl::Status prepared = context->Prepare(streams, high_priority); !prepared.ok())
    return prepared;
  return context;
}

absl::Status Context::Prepare(int stream_count, bool high_priority) {
  CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuDevicePrimaryCtxRetain, &context, device);
  CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuCtxSetCurrent, context);
  CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuDeviceGetAttribute, &sm_count,
                                CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  absl::Status created =
      api.cublaslt.ToStatus(api.cublaslt.cublasLtCreate(&cublaslt), "cublasLtCreate", 0);
  if (!created.ok()) return created;
  int lowest = 0, highest = 0;
  CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuCtxGetStreamPriorityRange, &lowest, &highest);
  for (int i = 0; i < stream_count; ++i) {
    CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuStreamCreateWithPriority,
                                  &streams.emplace_back(), CU_STREAM_NON_BLOCKING,
                                  high_priority ? highest : lowest);
    CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuEventCreate, &joins.emplace_back(),
                                  CU_EVENT_DISABLE_TIMING);
    CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuMemAlloc, &workspaces.emplace_back(),
                                  kWorkspaceBytes);
  }
  CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuEventCreate, &begin, CU_EVENT_DEFAULT);
  CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuEventCreate, &end, CU_EVENT_DEFAULT);
  return absl::OkStatus();
}

Context::~Context() {
  if (context == nullptr) return;
  const auto& driver = api.driver;
  driver.cuCtxSetCurrent(context);
  if (cublaslt != nullptr) api.cublaslt.cublasLtDestroy(cublaslt);
  // The last entry of a list is null when its creation failed.
  for (CUstream stream : streams) {
    if (stream != nullptr) driver.cuStreamDestroy(stream);
  }
  for (CUdeviceptr workspace : workspaces) {
    if (workspace != 0) driver.cuMemFree(workspace);
  }
  joins.insert(joins.end(), {begin, end});
  for (CUevent event : joins) {
    if (event != nullptr) driver.cuEventDestroy(event);
  }
  driver.cuDevicePrimaryCtxRelease(device);
}

absl::Status Context::Fork(int count) const {
  CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuEventRecord, joins[0], streams[0]);
  for (int i = 1; i < count; ++i) {
    CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuStreamWaitEvent, streams[i], joins[0], 0);
  }
  return absl::OkStatus();
}

absl::Status Context::Join(int count) const {
  for (int i = 1; i < count; ++i) {
    CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuEventRecord, joins[i], streams[i]);
    CONCERT_BENCH_RETURN_IF_ERROR(*this, api.driver, cuStreamWaitEvent, streams[0], joins[i], 0);
  }
  return absl::OkStatus();
}

absl::StatusOr<Graph> Graph::Capture(const Context& context,
                                     const std::function<absl::Status()>& enqueue) {
  CUgraph graph = nullptr;
  // Relaxed: this thread captures its own work only, and cuBLAS may load a kernel meanwhile.
  CONCERT_BENCH_RETURN_IF_ERROR(context, timing, cuStreamBeginCapture, context.streams[0],
                                CU_STREAM_CAPTURE_MODE_RELAXED);
  const absl::Status enqueued = enqueue();
  const absl::Status ended = context.Check(
      context.timing.cuStreamEndCapture(context.streams[0], &graph), "cuStreamEndCapture");
  const absl::Cleanup destroy = [&] {
    if (graph != nullptr) context.timing.cuGraphDestroy(graph);
  };
  if (!enqueued.ok()) return enqueued;
  if (!ended.ok()) return ended;
  CUgraphExec executable = nullptr;
  CONCERT_BENCH_RETURN_IF_ERROR(context, timing, cuGraphInstantiateWithFlags, &executable, graph,
                                0);
  return Graph(context, executable);
}

Graph::~Graph() {
  if (executable_ != nullptr) context_->timing.cuGraphExecDestroy(executable_);
}

absl::Status Graph::Launch() const {
  CONCERT_BENCH_RETURN_IF_ERROR(*context_, timing, cuGraphLaunch, executable_,
                                context_->streams[0]);
  return absl::OkStatus();
}

absl::StatusOr<double> Graph::Time(int replays) const {
  const Context& context = *context_;
  const CUstream stream = context.streams[0];
  CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuCtxSetCurrent, context.context);
  if (absl::Status filled = Launch(); !filled.ok()) return filled;
  CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuEventRecord, context.begin, stream);
  for (int i = 0; i < replays; ++i) {
    if (absl::Status launched = Launch(); !launched.ok()) return launched;
  }
  CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuEventRecord, context.end, stream);
  CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuStreamSynchronize, stream);
  float milliseconds = 0;
  CONCERT_BENCH_RETURN_IF_ERROR(context, timing, cuEventElapsedTime, &milliseconds, context.begin,
                                context.end);
  return milliseconds * 1000.0 / replays;
}

}  // namespace concert::bench::local
