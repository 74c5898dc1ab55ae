// Predicted times from first principles: roofline, waves of tiles, latency floors. Pure functions
// of the device model and the work. All results in microseconds.
#ifndef CONCERT_POLICIES_COST_MODEL_H_
#define CONCERT_POLICIES_COST_MODEL_H_

#include <span>

#include "policies/work.h"

namespace concert::policies {

// Lower bound of any implementation: max(FLOPs / peak, bytes / bandwidth).
double RooflineUs(const DeviceModel& device, const Work& work);

// One op alone on `sm_count` SMs (0: all), from its start to its end.
double SoloUs(const DeviceModel& device, const Work& work, int sm_count = 0);

// All of `works` launched side by side on lanes of their own, from the first start to the last end.
double CompanyUs(const DeviceModel& device, std::span<const Work* const> works);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_MODEL_H_
