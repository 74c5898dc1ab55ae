// What launches of the step kernel tell the host.
#ifndef CONCERT_KERNELS_STEP_STEP_REPORTS_H_
#define CONCERT_KERNELS_STEP_STEP_REPORTS_H_

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/cuda_api/driver.h"
#include "kernels/program/stalled_run.h"
#include "kernels/step/step_args.h"

namespace concert::kernels::cuda {

// A report for each lane, since its launches run one after the other. One thread at a time.
class StepReports {
 public:
  StepReports() = default;
  StepReports(const StepReports&) = delete;
  StepReports& operator=(const StepReports&) = delete;
  ~StepReports();

  // REQUIRES: the GPU's context is current, here and at the end.
  absl::Status Open(const Driver& driver, int gpu, size_t lanes);
  // Null unless it was opened.
  StepReport* Of(size_t lane) { return lane < reports_.size() ? &reports_[lane] : nullptr; }
  // Tells of each launch that has stalled since the last call, and lets it go on to its end.
  void Take(absl::FunctionRef<void(const StalledRun&)> tell);

 private:
  const Driver* driver_ = nullptr;
  std::span<StepReport> reports_;  // pinned
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STEP_REPORTS_H_
