// One CUDA GPU: its primary context, lanes, kernels and memory. Everything exists once Open
// returns.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_CUDA_DEVICE_H_
#define CONCERT_DAEMON_DEVICE_CUDA_CUDA_DEVICE_H_

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/cuda/cuda_contents.h"
#include "daemon/device/cuda/cuda_memory.h"
#include "daemon/device/cuda/cuda_options.h"
#include "daemon/device/cuda/nvtx_ranges.h"
#include "daemon/device/device.h"
#include "kernels/cuda_api/cuda_api.h"
#include "kernels/cuda_api/kernel_image.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/gemm/gemm_cache.h"
#include "kernels/group/batched_library.h"
#include "kernels/group/group_launcher.h"
#include "kernels/op_table.h"
#include "kernels/step/step_reports.h"
#include "kernels/step/step_sms.h"

namespace concert::daemon::cuda {

class CudaDevice : public Device {
 public:
  // Opens GPU `gpu` of `gpu_count` and runs one small GEMM per dtype, so that cuBLASLt is loaded
  // before traffic. `api` and `ranges` must outlive the device.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(const kernels::cuda::CudaApi& api,
                                                          const NvtxRanges& ranges, int gpu,
                                                          int gpu_count,
                                                          const CudaOptions& options);
  ~CudaDevice() override;

  // Of each lane: what NVIDIA recommends for cuBLAS on Hopper. Streams must not share one.
  static constexpr uint64_t kWorkspaceBytes = kernels::kMostWorkspaceBytes;

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Allocation> Allocate(uint64_t bytes) override {
    if (faulted()) return healthy();
    return memory_->Allocate(bytes);
  }
  absl::StatusOr<Allocation> Import(const ImportRequest& request) override {
    if (faulted()) return healthy();
    return memory_->Import(request);
  }
  void Free(const Allocation& allocation) override { memory_->Free(allocation); }
  absl::StatusOr<uint64_t> Digest(Address data, uint64_t bytes) override {
    return contents_->Digest(data, bytes);
  }
  absl::StatusOr<bool> Same(Address a, Address b, uint64_t bytes) override {
    return contents_->Same(a, b, bytes);
  }
  absl::Status Copy(Address to, Address from, uint64_t bytes) override {
    return contents_->Copy(to, from, bytes);
  }
  absl::Status Launch(const LaunchRequest& launch) override;
  absl::Status Signal(Lane lane, std::span<const TimelineWrite> writes) override;
  absl::Status Order(Lane lane, Lane before) override;
  std::vector<policies::Variant> Variants(const policies::Problem& problem, int sm_budget) override;
  void UseTuned(std::shared_ptr<const policies::TunedTable> tuned) override {
    tuned_ = std::move(tuned);
  }
  absl::Status Prepare(kernels::Program& program) override;
  absl::Status Prepare(kernels::Pass& pass) override;
  uint64_t WorkspaceBytes(const kernels::Program& program) override;
  uint64_t WorkspaceBytes(const kernels::Pass& pass) override;

  void TakeStalledRuns(absl::FunctionRef<void(const kernels::StalledRun&)> tell) override {
    step_reports_->Take(tell);
  }
  // Asks the driver (about 1 us).
  absl::Status healthy() const override;

  // Counters; any thread. The cache's entries are the dispatcher's.
  const kernels::cuda::GemmCache& gemm_cache() const { return gemm_cache_; }
  uint64_t batched_launches() const { return batched_->launches(); }

  // Group launches with the group kernel so far.
  uint64_t group_launches() const { return groups_ == nullptr ? 0 : groups_->launches(); }

  // For the node's collectives.
  CUcontext context() const { return context_; }
  CUstream stream(Lane lane) const { return lanes_[lane].stream; }
  CUevent issuer_event(Lane lane) const { return lanes_[lane].issuer_event; }
  const kernels::cuda::KernelTable& kernel_table() const { return kernels_.table(); }
  CUstream control_stream() const { return control_stream_; }
  CUevent control_event() const { return control_event_; }
  // For what a collective does beside its lane. Each lane of collectives has one, so that those of
  // high priority do not wait here for what others wait for.
  CUstream side_stream(Lane lane) const { return lanes_[lane].side_stream; }
  CUevent side_event(Lane lane) const { return lanes_[lane].side_event; }
  // Where peer kernels say whom they missed before they end the context.
  kernels::cuda::PeerReport* peer_report() const { return peer_report_; }
  // kScratchBytes for the control thread's warm-ups.
  CUdeviceptr scratch() const { return scratch_; }
  static constexpr uint64_t kScratchBytes = 1 << 20;
  // Lets this GPU reach `peer`'s memory directly.
  absl::Status EnablePeer(const CudaDevice& peer);
  // Records that a launch failed after part of it had started: the lanes hold work that nobody can
  // account for.
  absl::Status Fault(absl::Status status);
  // Relaxed: it is set once, and who sees it late gives the GPU one call more to refuse.
  bool faulted() const { return faulted_.load(std::memory_order_relaxed); }

  // Blocking; control thread. For tests and tools.
  absl::Status CopyToHost(void* host, Address source, uint64_t bytes) {
    return memory_->CopyToHost(host, source, bytes);
  }
  absl::Status CopyToDevice(Address destination, const void* host, uint64_t bytes) {
    return memory_->CopyToDevice(destination, host, bytes);
  }

 private:
  struct LaneState {
    CUstream stream = nullptr;
    // One event per waiting thread is enough: a stream that waits for an event waits for what the
    // event recorded at that moment, whatever it records later.
    CUevent dispatcher_event = nullptr;
    CUevent issuer_event = nullptr;
    CUstream side_stream = nullptr;  // of lanes of collectives; else null
    CUevent side_event = nullptr;
  };

  CudaDevice(const kernels::cuda::CudaApi& api, const NvtxRanges& ranges, int gpu)
      : api_(api),
        driver_(api.driver),
        ranges_(ranges),
        gpu_(gpu),
        batched_(std::in_place, api.driver, gpu) {}
  absl::Status Init(int gpu_count, const CudaOptions& options);
  absl::Status CreateLanes();
  absl::Status CreateWorkspaces();
  absl::Status PreparePeerKernels();
  absl::Status PrepareStepKernel(const CudaOptions& options);
  absl::Status CreateHandle(cublasLtHandle_t& handle);
  absl::Status WarmUp();
  // Of what errands capture, without a workspace.
  kernels::cuda::LaunchContext CaptureContext();
  void SeeOp(const LaunchRequest& launch);
  kernels::cuda::LaunchContext ContextOf(const LaunchRequest& launch);
  // Whether the group kernel takes `request` on this lane; then a track of groups_, else -1.
  int TrackFor(const LaunchRequest& launch) const;
  absl::Status LaunchOnTrack(int track, const LaunchRequest& launch);
  void InterruptGroups(Lane lane);
  // The ops of `request` alone, without its writes.
  absl::Status LaunchOps(const LaunchRequest& launch);
  absl::Status LaunchEach(kernels::cuda::LaunchContext& context, std::span<const Op* const> ops);

  const kernels::cuda::CudaApi& api_;
  const kernels::cuda::Driver& driver_;
  const NvtxRanges& ranges_;
  const int gpu_;
  CUdevice device_ = -1;
  CUcontext context_ = nullptr;
  DeviceInfo info_;
  std::array<LaneState, policies::kLaneCount> lanes_;
  CUstream control_stream_ = nullptr;
  CUstream probe_stream_ = nullptr;  // dispatcher: launches are captured here, none ever runs
  CUevent control_event_ = nullptr;
  CUstream errand_stream_ = nullptr;  // errands: programs are captured here, contents compared
  kernels::cuda::PeerReport* peer_report_ = nullptr;  // pinned
  std::optional<kernels::cuda::StepSms> step_sms_{std::in_place};
  std::optional<kernels::cuda::StepReports> step_reports_{std::in_place};
  CUdeviceptr workspaces_ = 0;  // kWorkspaceBytes per lane
  CUdeviceptr scratch_ = 0;
  cublasLtHandle_t cublaslt_ = nullptr;
  cublasLtHandle_t variants_cublaslt_ = nullptr;  // Variants() shares nothing with launches
  cublasLtHandle_t program_cublaslt_ = nullptr;   // nor does Prepare(), nor its cache
  kernels::cuda::GemmCache program_gemm_cache_;
  kernels::cuda::KernelImage kernels_;
  kernels::cuda::GemmCache gemm_cache_;
  std::optional<kernels::cuda::BatchedLibrary> batched_;
  std::unique_ptr<kernels::cuda::GroupLauncher> groups_;  // null where there is no group kernel
  std::optional<CudaMemory> memory_;
  std::optional<CudaContents> contents_;
  std::shared_ptr<const policies::TunedTable> tuned_;  // dispatcher
  std::atomic<bool> faulted_ = false;
};

}  // namespace concert::daemon::cuda

#endif  // CONCERT_DAEMON_DEVICE_CUDA_CUDA_DEVICE_H_
