#include "kernels/step/step_sms.h"

#include <algorithm>
#include <new>

namespace concert::kernels::cuda {
namespace {

// A session that has not been seen while others were, so many times, is no longer at work.
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

void StepSms::See(uint32_t session) {
  ++seen_;
  Recent* its = nullptr;
  at_work_ = 1;
  for (Recent& recent : recent_) {
    if (recent.order != 0 && recent.session == session) {
      its = &recent;
    } else if (recent.order != 0 && recent.order + kIdleAfter > seen_) {
      ++at_work_;
    }
  }
  if (its == nullptr) {
    its = std::min_element(recent_.begin(), recent_.end(),
                           [](const Recent& a, const Recent& b) { return a.order < b.order; });
  }
  *its = {session, seen_};
}

void StepSms::ForgetEnded() {
  Launches ended = 0;
  for (size_t i = 0; i < kMaxLaunches; ++i) {
    Launch& launch = launches_[i];
    if (launch.blocks == 0 || driver_->cuEventQuery(launch.end) != CUDA_SUCCESS) continue;
    launch.blocks = 0;
    ended |= Launches{1} << i;
  }
  if (ended == 0) return;
  for (Launch& launch : launches_) launch.behind &= ~ended;  // their places are for others
}

int StepSms::BlocksBut(Launches launches) const {
  int blocks = 0;
  for (size_t i = 0; i < kMaxLaunches; ++i) {
    if ((launches >> i & 1) == 0) blocks += launches_[i].blocks;
  }
  return blocks;
}

int StepSms::OldestBut(Launches launches) const {
  int oldest = -1;
  for (size_t i = 0; i < kMaxLaunches; ++i) {
    const Launch& launch = launches_[i];
    if (launch.blocks == 0 || (launches >> i & 1) != 0) continue;
    if (oldest < 0 || launch.order < launches_[oldest].order) oldest = static_cast<int>(i);
  }
  return oldest;
}

absl::Status StepSms::GoBehind(int launch, CUstream stream, Launches& behind) {
  const Launch& other = launches_[launch];
  behind |= Launches{1} << launch | other.behind;
  if (other.stream == stream) return absl::OkStatus();  // it is already
  return driver_->ToStatus(driver_->cuStreamWaitEvent(stream, other.end, 0), "cuStreamWaitEvent",
                           gpu_);
}

// Of launches that may be on the GPU at once the last to be taken for has seen all others as such,
// so that what holds here for it and them holds for all of them.
absl::StatusOr<int> StepSms::Take(const void* program, CUstream stream, int most) {
  ForgetEnded();
  const auto free_place = std::find_if(launches_.begin(), launches_.end(),
                                       [](const Launch& launch) { return launch.blocks == 0; });
  if (free_place == launches_.end()) return 0;
  taken_behind_ = 0;
  for (size_t i = 0; i < kMaxLaunches; ++i) {
    const Launch& launch = launches_[i];
    if (launch.blocks == 0 || (launch.program != program && launch.stream != stream)) continue;
    const absl::Status status = GoBehind(static_cast<int>(i), stream, taken_behind_);
    if (!status.ok()) return status;
  }
  // A half, a quarter or an eighth where two, three, or five sessions are at work: launches of
  // different sizes would leave SMs that none fits.
  int share = 1;
  while (share < at_work_ && share < static_cast<int>(kMaxSessions)) share *= 2;
  int blocks = sm_count_ / share;
  if (most > 0) blocks = std::min(blocks, most);
  while (BlocksBut(taken_behind_) + blocks > sm_count_) {
    const absl::Status status = GoBehind(OldestBut(taken_behind_), stream, taken_behind_);
    if (!status.ok()) return status;
  }
  return blocks;
}

absl::Status StepSms::Launched(const void* program, int blocks, CUstream stream) {
  Launch& launch = *std::find_if(launches_.begin(), launches_.end(),
                                 [](const Launch& one) { return one.blocks == 0; });
  launch.program = program;
  launch.stream = stream;
  launch.blocks = blocks;
  launch.order = ++order_;
  launch.behind = taken_behind_;
  CONCERT_RETURN_IF_DRIVER_ERROR(*driver_, gpu_, cuEventRecord, launch.end, stream);
  return absl::OkStatus();
}

}  // namespace concert::kernels::cuda
