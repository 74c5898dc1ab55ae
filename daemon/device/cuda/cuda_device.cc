#include "daemon/device/cuda/cuda_device.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"
#include "daemon/device/cuda/cuda_probe.h"
#include "kernels/comm/peer_args.h"
#include "kernels/gemm/gemm_variants.h"
#include "kernels/op_table.h"
#include "kernels/program/pass.h"
#include "kernels/program/pass_graph.h"
#include "kernels/program/program_cuda.h"
#include "kernels/program/program_op.h"
#include "kernels/rows/row_ops.h"
#include "kernels/step/step_shared.h"

namespace concert::daemon::cuda {
namespace {

using kernels::cuda::CudaApi;
using kernels::cuda::Driver;

// cuStreamBatchMemOp takes at most 256 operations; a launch of more writes than this is split.
constexpr size_t kWritesPerBatch = 64;

bool IsBoundByArithmetic(const policies::Work& work, const policies::DeviceModel& model) {
  return static_cast<double>(work.flops) * model.hbm_bytes_per_s >
         static_cast<double>(work.hbm_bytes) * model.tensor_flops;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(const CudaApi& api,
                                                             const NvtxRanges& ranges, int gpu,
                                                             int gpu_count,
                                                             const CudaOptions& options) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(api, ranges, gpu));
  if (absl::Status status = device->Init(gpu_count, options); !status.ok()) return status;
  return device;
}

absl::Status CudaDevice::Init(int gpu_count, const CudaOptions& options) {
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
  if (absl::Status status = PreparePeerKernels(); !status.ok()) return status;
  if (absl::Status status = PrepareStepKernel(options); !status.ok()) return status;
  if (absl::Status status = CreateHandle(cublaslt_); !status.ok()) return status;
  if (absl::Status status = CreateHandle(variants_cublaslt_); !status.ok()) return status;
  if (absl::Status status = CreateHandle(program_cublaslt_); !status.ok()) return status;
  if (absl::Status status = batched_->Init(); !status.ok()) return status;
  if (kernels_.table().group[0][0] != nullptr) {
    std::array<CUstream, policies::kGroupLaneCount> streams;
    for (int i = 0; i < policies::kGroupLaneCount; ++i) {
      streams[i] = lanes_[policies::kGroupLanes[i]].stream;
    }
    absl::StatusOr<std::unique_ptr<kernels::cuda::GroupLauncher>> groups =
        kernels::cuda::GroupLauncher::Open(driver_, gpu_, kernels_.table(), streams,
                                           options.split_sums);
    if (!groups.ok()) return groups.status();
    groups_ = *std::move(groups);
    info_.model.group_kernel = true;
  }
  info_.model.collective_sms = options.collective_sms;
  memory_.emplace(driver_, gpu_, gpu_count, /*shared=*/info_.peer_access, context_,
                  control_stream_);
  contents_.emplace(driver_, gpu_, context_, errand_stream_, kernels_.table());
  if (absl::Status status = contents_->Init(); !status.ok()) return status;
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
    if (!policies::IsCollectiveLane(lane)) continue;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamCreateWithPriority, &state.side_stream,
                                   CU_STREAM_NON_BLOCKING, greatest);
    if (absl::Status status = create_event(state.side_event); !status.ok()) return status;
  }
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamCreateWithPriority, &control_stream_,
                                 CU_STREAM_NON_BLOCKING, least);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamCreateWithPriority, &probe_stream_,
                                 CU_STREAM_NON_BLOCKING, least);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamCreateWithPriority, &errand_stream_,
                                 CU_STREAM_NON_BLOCKING, least);
  return create_event(control_event_);
}

absl::Status CudaDevice::PreparePeerKernels() {
  using kernels::cuda::BulkMemory, kernels::cuda::PeerReport;
  const kernels::cuda::KernelTable& table = kernels_.table();
  if (table.peer_push == nullptr) return absl::OkStatus();
  std::vector<CUfunction> functions = {table.peer_push};
  functions.insert(functions.end(), table.peer_reduce.begin(), table.peer_reduce.end());
  functions.insert(functions.end(), table.peer_all_reduce.begin(), table.peer_all_reduce.end());
  for (CUfunction function : functions) {
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuFuncSetAttribute, function,
                                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   static_cast<int>(sizeof(BulkMemory)));
  }
  void* report = nullptr;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemHostAlloc, &report, sizeof(PeerReport),
                                 CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
  peer_report_ = new (report) PeerReport{};
  return absl::OkStatus();
}

absl::Status CudaDevice::PrepareStepKernel(const CudaOptions& options) {
  if (kernels_.table().step[0] == nullptr ||
      options.program_engine == kernels::ProgramEngine::kGraph)
    return absl::OkStatus();
  for (CUfunction step : kernels_.table().step) {
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuFuncSetAttribute, step,
                                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   static_cast<int>(sizeof(kernels::cuda::StepMemory)));
  }
  if (absl::Status status = step_reports_->Open(driver_, gpu_, policies::kLaneCount); !status.ok())
    return status;
  return step_sms_->Open(
      driver_, gpu_, {info_.model.sm_count, options.program_engine, options.low_class_sm_percent});
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

absl::Status CudaDevice::CreateHandle(cublasLtHandle_t& handle) {
  return api_.cublaslt.ToStatus(api_.cublaslt.cublasLtCreate(&handle), "cublasLtCreate", gpu_);
}

absl::Status CudaDevice::WarmUp() {
  for (const policies::Dtype dtype : {policies::Dtype::kBf16, policies::Dtype::kFp16,
                                      policies::Dtype::kFp32, policies::Dtype::kFp8E4m3}) {
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
               .a_scales = 0,
               .w_scales = 0,
               .dtype = dtype,
               .d_dtype = dtype == policies::Dtype::kFp8E4m3 ? policies::Dtype::kBf16 : dtype,
               .activation = kernels::Activation::kNone,
               .allow_tf32 = false,
               .a_scales_per_row = false,
               .w_scales_per_row = false};
    const Op* ops[] = {&op};
    if (absl::Status status = Launch({.ops = ops}); !status.ok()) return status;
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
  contents_.reset();
  memory_.reset();
  groups_.reset();
  kernels_ = {};
  batched_.reset();
  step_sms_.reset();
  step_reports_.reset();
  for (cublasLtHandle_t handle : {cublaslt_, variants_cublaslt_, program_cublaslt_}) {
    if (handle != nullptr) api_.cublaslt.cublasLtDestroy(handle);
  }
  if (workspaces_ != 0) driver_.cuMemFree(workspaces_);
  if (scratch_ != 0) driver_.cuMemFree(scratch_);
  for (const LaneState& lane : lanes_) {
    for (CUevent event : {lane.dispatcher_event, lane.issuer_event, lane.side_event}) {
      if (event != nullptr) driver_.cuEventDestroy(event);
    }
    for (CUstream stream : {lane.stream, lane.side_stream}) {
      if (stream != nullptr) driver_.cuStreamDestroy(stream);
    }
  }
  if (peer_report_ != nullptr) driver_.cuMemFreeHost(peer_report_);
  if (control_event_ != nullptr) driver_.cuEventDestroy(control_event_);
  for (CUstream stream : {control_stream_, probe_stream_, errand_stream_}) {
    if (stream != nullptr) driver_.cuStreamDestroy(stream);
  }
  driver_.cuCtxSetCurrent(nullptr);
  driver_.cuDevicePrimaryCtxRelease(device_);
}

absl::Status CudaDevice::EnablePeer(const CudaDevice& peer) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  const CUresult result = driver_.cuCtxEnablePeerAccess(peer.context_, 0);
  if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return absl::OkStatus();
  return driver_.ToStatus(result, "cuCtxEnablePeerAccess", gpu_);
}

absl::Status CudaDevice::Launch(const LaunchRequest& launch) {
  if (faulted()) return healthy();
  const Lane lane = launch.planned.lane;
  if (step_sms_->usable()) SeeOp(launch);
  const NvtxRanges::Range range(ranges_, launch.ops[0]->kind, launch.planned.form, launch.reason,
                                launch.plan);
  // cuBLASLt launches into the current context.
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  if (const int track = TrackFor(launch); track >= 0) return LaunchOnTrack(track, launch);
  InterruptGroups(lane);
  if (absl::Status status = LaunchOps(launch); !status.ok()) return status;
  if (launch.writes.empty()) return absl::OkStatus();
  const absl::Status signalled = Signal(lane, launch.writes);
  return signalled.ok() ? signalled : Fault(signalled);
}

void CudaDevice::SeeOp(const LaunchRequest& launch) {
  const Op& first = *launch.ops.front();
  kernels::cuda::SeenOp seen = {.client = first.session,
                                .high = policies::IsHighPriority(launch.planned.lane),
                                .arithmetic = IsBoundByArithmetic(first.work, info_.model)};
  if (first.kind == CONCERT_OP_PROGRAM) {
    seen.program = true;
    seen.now_ns = NowNs();
    // Replicas do not share the SMs: they wait for each other anyway.
    if (const auto* pass = first.program.program->pass.load(std::memory_order_acquire);
        pass != nullptr)
      seen.client = reinterpret_cast<uintptr_t>(pass);
  }
  step_sms_->See(seen);
}

kernels::cuda::LaunchContext CudaDevice::ContextOf(const LaunchRequest& launch) {
  const policies::PlannedLaunch& planned = launch.planned;
  return {.api = api_,
          .kernels = kernels_.table(),
          .cublaslt = cublaslt_,
          .gemm_cache = gemm_cache_,
          .gpu = gpu_,
          .stream = lanes_[planned.lane].stream,
          .workspace = workspaces_ + kWorkspaceBytes * planned.lane,
          .workspace_bytes = kWorkspaceBytes,
          .sm_budget = planned.sm_budget < info_.model.sm_count ? planned.sm_budget : 0,
          .form = planned.form,
          .degree = planned.degree,
          .tuned = tuned_.get(),
          .variant = launch.variant,
          .probe_stream = probe_stream_,
          .step_sms = step_sms_->usable() ? &*step_sms_ : nullptr,
          .step_report = step_reports_->Of(planned.lane)};
}

int CudaDevice::TrackFor(const LaunchRequest& launch) const {
  if (groups_ == nullptr) return -1;
  const policies::PlannedLaunch& planned = launch.planned;
  const bool group = planned.form == policies::Form::kGroup && planned.work_list != nullptr &&
                     kernels::cuda::GroupLauncher::Carries(launch.ops);
  if (!group && !kernels::cuda::AreRows(launch.ops)) return -1;
  return policies::GroupLaneIndex(planned.lane);
}

absl::Status CudaDevice::LaunchOnTrack(int track, const LaunchRequest& launch) {
  return kernels::cuda::AreRows(launch.ops) ? groups_->LaunchRows(track, launch)
                                            : groups_->Launch(track, launch);
}

void CudaDevice::InterruptGroups(Lane lane) {
  const int track = policies::GroupLaneIndex(lane);
  if (track >= 0 && groups_ != nullptr) groups_->Interrupt(track);
}

absl::Status CudaDevice::LaunchOps(const LaunchRequest& launch) {
  kernels::cuda::LaunchContext context = ContextOf(launch);
  if (kernels::cuda::AreRows(launch.ops)) return kernels::cuda::LaunchRows(context, launch.ops);
  if (kernels::InPass(*launch.ops[0])) return kernels::cuda::LaunchPass(context, launch.ops);
  if (launch.planned.form == policies::Form::kGroup) {
    const absl::StatusOr<bool> launched =
        batched_->TryLaunch(context, launch.planned.lane, launch.ops);
    if (!launched.ok() || *launched) return launched.status();
    // One after the other, so each as if it were alone.
    context.form = policies::Form::kSingle;
    context.degree = policies::Degree::kSolo;
  }
  return LaunchEach(context, launch.ops);
}

absl::Status CudaDevice::LaunchEach(kernels::cuda::LaunchContext& context,
                                    std::span<const Op* const> ops) {
  for (const Op* op : ops) {
    const kernels::OpKind* kind = kernels::FindOpKind(op->kind);
    absl::Status status =
        kind != nullptr && kind->launch != nullptr
            ? kind->launch(context, *op)
            : absl::InternalError(absl::StrCat("op kind ", op->kind, " has no CUDA launcher"));
    if (!status.ok()) return op == ops.front() ? status : Fault(status);
  }
  return absl::OkStatus();
}

kernels::cuda::LaunchContext CudaDevice::CaptureContext() {
  return {.api = api_,
          .kernels = kernels_.table(),
          .cublaslt = program_cublaslt_,
          .gemm_cache = program_gemm_cache_,
          .gpu = gpu_,
          .stream = errand_stream_,
          .workspace = 0,
          .workspace_bytes = 0,
          .sm_budget = 0,
          .step_sms = step_sms_->usable() ? &*step_sms_ : nullptr};
}

uint64_t CudaDevice::WorkspaceBytes(const kernels::Program& program) {
  return kernels::cuda::CudaProgram::WorkspaceBytes(CaptureContext(), program);
}

uint64_t CudaDevice::WorkspaceBytes(const kernels::Pass& pass) {
  return kernels::cuda::PassGraph::WorkspaceBytes(CaptureContext(), pass);
}

absl::Status CudaDevice::Prepare(kernels::Program& program) {
  if (faulted()) return healthy();
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  absl::StatusOr<std::unique_ptr<kernels::cuda::CudaProgram>> made =
      kernels::cuda::CudaProgram::Make(CaptureContext(), program);
  if (!made.ok()) return made.status();
  program.executable = *std::move(made);
  return absl::OkStatus();
}

absl::Status CudaDevice::Prepare(kernels::Pass& pass) {
  if (faulted()) return healthy();
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  kernels::cuda::LaunchContext context = CaptureContext();
  const kernels::ByteRange& workspace = pass.program.workspace;
  context.workspace = workspace.begin, context.workspace_bytes = workspace.end - workspace.begin;
  absl::StatusOr<std::unique_ptr<kernels::cuda::PassGraph>> made =
      kernels::cuda::PassGraph::Capture(context, pass);
  if (!made.ok()) return made.status();
  pass.program.executable = *std::move(made);
  return absl::OkStatus();
}

std::vector<policies::Variant> CudaDevice::Variants(const policies::Problem& problem,
                                                    int sm_budget) {
  if (driver_.cuCtxSetCurrent(context_) != CUDA_SUCCESS) return {};
  const kernels::cuda::GemmHeuristic heuristic(api_.cublaslt, variants_cublaslt_, kWorkspaceBytes);
  const int sm_count = info_.model.sm_count;
  return kernels::cuda::ListVariants(api_.cublaslt, heuristic, sm_count, problem,
                                     sm_budget < sm_count ? sm_budget : 0);
}

absl::Status CudaDevice::Signal(Lane lane, std::span<const TimelineWrite> writes) {
  InterruptGroups(lane);
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

absl::Status CudaDevice::Fault(absl::Status status) {
  faulted_.store(true, std::memory_order_relaxed);
  return status;
}

absl::Status CudaDevice::healthy() const {
  if (faulted()) {
    return absl::InternalError(
        absl::StrCat("GPU ", gpu_, ": a launch failed after part of it had started"));
  }
  // Any call into a context that has faulted returns the fault.
  const CUresult result = driver_.cuStreamQuery(control_stream_);
  if (const kernels::cuda::PeerReport* report = peer_report_;
      report != nullptr && report->missing != 0) {
    return absl::InternalError(absl::StrCat("GPU ", gpu_, ": rank ", report->missing - 1,
                                            " of a collective did not come to block ",
                                            report->block, " of a peer kernel"));
  }
  return result == CUDA_ERROR_NOT_READY ? absl::OkStatus()
                                        : driver_.ToStatus(result, "cuStreamQuery", gpu_);
}

}  // namespace concert::daemon::cuda
