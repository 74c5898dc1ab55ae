#include "kernels/step/step_reports.h"

#include <atomic>
#include <memory>

namespace concert::kernels::cuda {

StepReports::~StepReports() {
  if (driver_ != nullptr) driver_->cuMemFreeHost(reports_.data());
}

absl::Status StepReports::Open(const Driver& driver, int gpu, size_t lanes) {
  void* memory = nullptr;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuMemHostAlloc, &memory, lanes * sizeof(StepReport),
                                 CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
  driver_ = &driver;
  reports_ = {static_cast<StepReport*>(memory), lanes};
  std::uninitialized_value_construct(reports_.begin(), reports_.end());
  return absl::OkStatus();
}

void StepReports::Take(absl::FunctionRef<void(const StalledRun&)> tell) {
  for (StepReport& report : reports_) {
    // Acquire: pairs with the device's fence between what it tells and this.
    const uint64_t stalled = std::atomic_ref(report.stalled).load(std::memory_order_acquire);
    if (stalled == report.answered) continue;
    tell(report.run);
    // Release: whoever sees the run end sees what was told before.
    std::atomic_ref(report.answered).store(stalled, std::memory_order_release);
  }
}

}  // namespace concert::kernels::cuda
