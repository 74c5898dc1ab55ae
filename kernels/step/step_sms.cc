#include "kernels/step/step_sms.h"

#include <algorithm>
#include <new>

namespace concert::kernels::cuda {
namespace {

// A program that has not run during so many runs of others is no longer in use.
constexpr uint64_t kIdleAfter = 24;

}  // namespace

StepSms::~StepSms() {
  if (driver_ == nullptr) return;
  for (const Launch& launch : launches_) {
    if (launch.end != nullptr) driver_->cuEventDestroy(launch.end);
  }
  if (report_ != nullptr) driver_->cuMemFreeHost(report_);
}

absl::Status StepSms::Open(const Driver& driver, int gpu, int sm_count, bool shared) {
  driver_ = &driver;
  gpu_ = gpu;
  shared_ = shared;
  sm_count_ = std::min(sm_count, static_cast<int>(kMaxStepBlocks));
  for (Launch& launch : launches_) {
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuEventCreate, &launch.end,
                                   CU_EVENT_DISABLE_TIMING);
  }
  void* report = nullptr;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuMemHostAlloc, &report, sizeof(StepReport),
                                 CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
  report_ = new (report) StepReport{};
  return absl::OkStatus();
}

bool StepSms::Wants(const void* program) {
  ++runs_;
  Recent* its = nullptr;
  in_use_ = 1;
  for (Recent& recent : recent_) {
    if (recent.program == program) {
      its = &recent;
    } else if (recent.program != nullptr && recent.order + kIdleAfter > runs_) {
      ++in_use_;
    }
  }
  if (its == nullptr) {
    its = std::min_element(recent_.begin(), recent_.end(),
                           [](const Recent& a, const Recent& b) { return a.order < b.order; });
  }
  *its = {program, runs_};
  return shared_ || in_use_ == 1;
}

void StepSms::ForgetEnded() {
  for (Launch& launch : launches_) {
    if (launch.blocks > 0 && driver_->cuEventQuery(launch.end) == CUDA_SUCCESS) launch.blocks = 0;
  }
}

StepSms::Launch* StepSms::Oldest() {
  Launch* oldest = nullptr;
  for (Launch& launch : launches_) {
    if (launch.blocks > 0 && (oldest == nullptr || launch.order < oldest->order)) oldest = &launch;
  }
  return oldest;
}

absl::Status StepSms::GoBehind(Launch& launch, CUstream stream) {
  CONCERT_RETURN_IF_DRIVER_ERROR(*driver_, gpu_, cuStreamWaitEvent, stream, launch.end, 0);
  launch.blocks = 0;
  return absl::OkStatus();
}

absl::StatusOr<int> StepSms::Take(const void* program, CUstream stream, int most) {
  ForgetEnded();
  for (Launch& launch : launches_) {
    if (launch.blocks == 0 || launch.program != program) continue;
    if (absl::Status status = GoBehind(launch, stream); !status.ok()) return status;
  }
  // A half, a quarter or an eighth where two, three, or five programs are in use: launches of
  // different sizes would leave SMs that none fits.
  int share = 1;
  while (share < in_use_ && share < static_cast<int>(kMaxLaunches)) share *= 2;
  int blocks = sm_count_ / share;
  if (most > 0) blocks = std::min(blocks, most);
  for (;;) {
    int free = sm_count_, places = 0;
    for (const Launch& launch : launches_) {
      free -= launch.blocks;
      places += launch.blocks == 0 ? 1 : 0;
    }
    if (free >= blocks && places > 0) return blocks;
    if (absl::Status status = GoBehind(*Oldest(), stream); !status.ok()) return status;
  }
}

absl::Status StepSms::Launched(const void* program, int blocks, CUstream stream) {
  Launch& launch = *std::find_if(launches_.begin(), launches_.end(),
                                 [](const Launch& one) { return one.blocks == 0; });
  launch.program = program;
  launch.blocks = blocks;
  launch.order = ++order_;
  CONCERT_RETURN_IF_DRIVER_ERROR(*driver_, gpu_, cuEventRecord, launch.end, stream);
  return absl::OkStatus();
}

}  // namespace concert::kernels::cuda
