#ifndef CONCERT_DAEMON_DEVICE_CUDA_CUDA_OPTIONS_H_
#define CONCERT_DAEMON_DEVICE_CUDA_CUDA_OPTIONS_H_

#include <cstdint>

#include "daemon/config/defaults.h"
#include "kernels/op.h"
#include "kernels/program/program_engine.h"

namespace concert::daemon {

struct CudaOptions {
  kernels::SplitSums split_sums = kernels::SplitSums::kRepeatable;
  int collective_sms = 0;                                  // DeviceModel::collective_sms
  int64_t collective_spin_ns = defaults::kSpinUs * 1'000;  // of threads that launch collectives
  kernels::ProgramEngine program_engine = kernels::ProgramEngine::kAuto;
  int low_class_sm_percent = defaults::kLowClassSmPercent;
  bool nvtx = false;  // with ranges around launches (nvtx_ranges.h)
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_DEVICE_CUDA_CUDA_OPTIONS_H_
