#include "daemon/device/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/device/cuda/cuda_probe.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/op_table.h"

namespace concert::daemon::cuda {
namespace {

using kernels::cuda::CudaApi;
using kernels::cuda::Driver;

// What NVIDIA recommends for cuBLAS on Hopper. Streams must not share one.
constexpr uint64_t kWorkspaceBytes = 32 << 20;
// cuStreamBatchMemOp takes at most 256 operations; a launch of more writes than this is split.
constexpr size_t kWritesPerBatch = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(const CudaApi& api, int gpu,
                                                             int gpu_count) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(api, gpu));
  if (absl::Status status = device->Init(gpu_count); !status.ok()) return status;
  return device;
}

absl::Status CudaDevice::Init(int gpu_count) {
  absl::StatusOr<DeviceInfo> info = ProbeDevice(driver_, gpu_, gpu_count);
  if (!info.ok()) return info.status();
  info_ = *std::move(info);
  info_.software = DescribeSoftware(api_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuDeviceGet, &device_, gpu_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuDevicePrimaryCtxRetain, &context_, device_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  if (absl::Status status = CreateLanes(); !status.ok()) return status;
  if (absl::Status status = CreateWorkspaces(); !status.ok()) return status;
  absl::StatusOr<kernels::cuda::KernelImage> image =
      kernels::cuda::KernelImage::Load(driver_, gpu_);
  if (!image.ok()) return image.status();
  kernels_ = *std::move(image);
  if (cublasStatus_t status = api_.cublaslt.cublasLtCreate(&cublaslt_);
      status != CUBLAS_STATUS_SUCCESS) {
    return api_.cublaslt.ToStatus(status, "cublasLtCreate", gpu_);
  }
  memory_.emplace(driver_, gpu_, gpu_count, /*shared=*/info_.peer_access, context_,
                  control_stream_);
  return WarmUp();
}

absl::Status CudaDevice::CreateLanes() {
  int least = 0, greatest = 0;  // numerically, the greatest priority is the smallest
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxGetStreamPriorityRange, &least, &greatest);
  const auto create_event = [&](CUevent& event) {
    return driver_.ToStatus(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate",
                            gpu_);
  };
  for (Lane lane = 0; lane < policies::kLaneCount; ++lane) {
    LaneState& state = lanes_[lane];
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamCreateWithPriority, &state.stream,
                                   CU_STREAM_NON_BLOCKING,
                                   policies::IsHighPriority(lane) ? greatest : least);
    if (absl::Status status = create_event(state.dispatcher_event); !status.ok()) return status;
    if (absl::Status status = create_event(state.issuer_event); !status.ok()) return status;
  }
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamCreateWithPriority, &control_stream_,
                                 CU_STREAM_NON_BLOCKING, least);
  return create_event(control_event_);
}

absl::Status CudaDevice::CreateWorkspaces() {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemAlloc, &workspaces_,
                                 kWorkspaceBytes * policies::kLaneCount);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemAlloc, &scratch_, kScratchBytes);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemsetD8Async, scratch_, 0, kScratchBytes,
                                 control_stream_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamSynchronize, control_stream_);
  return absl::OkStatus();
}

absl::Status CudaDevice::WarmUp() {
  for (const policies::Dtype dtype :
       {policies::Dtype::kBf16, policies::Dtype::kFp16, policies::Dtype::kFp32}) {
    constexpr uint32_t kSize = 128;
    Op op;
    op.kind = CONCERT_OP_GEMM;
    op.gemm = {.m = kSize,
               .n = kSize,
               .k = kSize,
               .batch = 1,
               .a = scratch_,
               .w = scratch_,
               .c = 0,
               .d = scratch_ + kScratchBytes / 2,
               .bias = 0,
               .lda = kSize,
               .ldw = kSize,
               .ldc = 0,
               .ldd = kSize,
               .stride_a = 0,
               .stride_w = 0,
               .stride_c = 0,
               .stride_d = 0,
               .alpha = 1,
               .beta = 0,
               .dtype = dtype,
               .activation = kernels::Activation::kNone,
               .allow_tf32 = false};
    const Op* ops[] = {&op};
    if (absl::Status status = Launch(0, {.ops = ops}); !status.ok())
      return status;
  }
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamSynchronize, lanes_[0].stream);
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  driver_.cuCtxSetCurrent(context_);
  for (const LaneState& lane : lanes_) {
    if (lane.stream != nullptr) driver_.cuStreamSynchronize(lane.stream);
  }
  memory_.reset();
  kernels_ = {};
  if (cublaslt_ != nullptr) api_.cublaslt.cublasLtDestroy(cublaslt_);
  if (workspaces_ != 0) driver_.cuMemFree(workspaces_);
  if (scratch_ != 0) driver_.cuMemFree(scratch_);
  for (const LaneState& lane : lanes_) {
    for (CUevent event : {lane.dispatcher_event, lane.issuer_event}) {
      if (event != nullptr) driver_.cuEventDestroy(event);
    }
    if (lane.stream != nullptr) driver_.cuStreamDestroy(lane.stream);
  }
  if (control_event_ != nullptr) driver_.cuEventDestroy(control_event_);
  if (control_stream_ != nullptr) driver_.cuStreamDestroy(control_stream_);
  driver_.cuCtxSetCurrent(nullptr);
  driver_.cuDevicePrimaryCtxRelease(device_);
}

absl::Status CudaDevice::EnablePeer(const CudaDevice& peer) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  const CUresult result = driver_.cuCtxEnablePeerAccess(peer.context_, 0);
  if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return absl::OkStatus();
  return driver_.ToStatus(result, "cuCtxEnablePeerAccess", gpu_);
}

absl::Status CudaDevice::Launch(Lane lane, const LaunchRequest& request) {
  const std::span<const Op* const> ops = request.ops;
  if (faulted_.load(std::memory_order_relaxed)) return healthy();
  // cuBLASLt launches into the current context.
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  kernels::cuda::LaunchContext context = {
      .api = api_,
      .kernels = kernels_.table(),
      .cublaslt = cublaslt_,
      .gemm_cache = gemm_cache_,
      .gpu = gpu_,
      .stream = lanes_[lane].stream,
      .workspace = workspaces_ + kWorkspaceBytes * lane,
      .workspace_bytes = kWorkspaceBytes,
      .sm_budget = request.sm_budget < info_.model.sm_count ? request.sm_budget : 0};
  for (const Op* op : ops) {
    const kernels::OpKind* kind = kernels::FindOpKind(op->kind);
    absl::Status status =
        kind != nullptr && kind->launch != nullptr
            ? kind->launch(context, *op)
            : absl::InternalError(absl::StrCat("op kind ", op->kind, " has no CUDA launcher"));
    if (!status.ok()) return op == ops.front() ? status : Fault(status);
  }
  if (request.writes.empty()) return absl::OkStatus();
  const absl::Status signalled = Signal(lane, request.writes);
  return signalled.ok() ? signalled : Fault(signalled);
}

absl::Status CudaDevice::Signal(Lane lane, std::span<const TimelineWrite> writes) {
  const CUstream stream = lanes_[lane].stream;
  // The default write is preceded by a system-wide fence: who sees the value sees the results
  // before it.
  if (writes.size() == 1) {
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamWriteValue64, stream, writes[0].address,
                                   writes[0].value, CU_STREAM_WRITE_VALUE_DEFAULT);
    return absl::OkStatus();
  }
  std::array<CUstreamBatchMemOpParams, kWritesPerBatch> batch;
  while (!writes.empty()) {
    const size_t count = std::min(writes.size(), kWritesPerBatch);
    for (size_t i = 0; i < count; ++i) {
      batch[i] = {};
      batch[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
      batch[i].writeValue.address = writes[i].address;
      batch[i].writeValue.value64 = writes[i].value;
      batch[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    }
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamBatchMemOp, stream,
                                   static_cast<unsigned>(count), batch.data(), 0);
    writes = writes.subspan(count);
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::Order(Lane lane, Lane before) {
  if (lane == before) return absl::OkStatus();
  const CUevent event = lanes_[before].dispatcher_event;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuEventRecord, event, lanes_[before].stream);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamWaitEvent, lanes_[lane].stream, event, 0);
  return absl::OkStatus();
}

// What LaunchGemm runs: the heuristic's first choice.
std::vector<policies::Variant> CudaDevice::Variants(const policies::Problem& problem,
                                                    int sm_budget) {
  return {{.source = policies::Variant::Source::kCublasLt,
           .dtype = problem.dtype,
           .sm_budget = static_cast<uint16_t>(sm_budget)}};
}

absl::Status CudaDevice::Fault(absl::Status status) {
  faulted_.store(true, std::memory_order_relaxed);
  return status;
}

absl::Status CudaDevice::healthy() const {
  if (faulted_.load(std::memory_order_relaxed)) {
    return absl::InternalError(
        absl::StrCat("GPU ", gpu_, ": a launch failed after part of it had started"));
  }
  // Any call into a context that has faulted returns the fault.
  const CUresult result = driver_.cuStreamQuery(control_stream_);
  return result == CUDA_ERROR_NOT_READY ? absl::OkStatus()
                                        : driver_.ToStatus(result, "cuStreamQuery", gpu_);
}

}  // namespace concert::daemon::cuda
