// Models of GPUs that results were measured on.
#ifndef CONCERT_TESTS_BENCH_GPU_MODELS_H_
#define CONCERT_TESTS_BENCH_GPU_MODELS_H_

#include <string>
#include <vector>

#include "policies/seam/work.h"

namespace concert::bench {

inline std::vector<std::string> GpuModelNames() { return {"h200", "h100"}; }

// As the daemon sees the GPU (EstimateModel in daemon/device/cuda/cuda_probe.cc): the defaults are
// an H200's, and an H100 (SXM) differs from it only in its memory, whose clock is 2619 MHz and
// whose bus has 5120 bits. REQUIRES: GpuModelNames() has it.
inline policies::DeviceModel GpuModelOf(const std::string& name) {
  policies::DeviceModel model{.group_kernel = true};
  constexpr double kShareReached = 0.86, kClockHz = 2619e6, kBusBytes = 640;
  if (name == "h100") model.hbm_bytes_per_s = kShareReached * 2 * kClockHz * kBusBytes;
  return model;
}

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_GPU_MODELS_H_
