// What a measurement depends on besides its key. Rows of another environment are never looked at.
#ifndef CONCERT_DAEMON_TUNING_ENVIRONMENT_H_
#define CONCERT_DAEMON_TUNING_ENVIRONMENT_H_

#include <string>

#include "daemon/device/device.h"

namespace concert::daemon {

// To be raised when the store's columns, or the meaning of their values, change.
inline constexpr int kStoreSchemaVersion = 2;
// To be raised when the way of measuring (device_bench.cc, halving.cc) or concert's own GEMM
// kernels change so that old times cannot be compared with new ones.
inline constexpr int kMeasurementVersion = 6;
// The same for collectives (collective_bench.cc, curve_fit.cc) and their transports.
inline constexpr int kCollectiveMeasurementVersion = 5;

struct Environment {
  std::string name;  // the namespace: 16 hexadecimal digits, the FNV-1a hash of `description`
  // "NVIDIA H200, compute capability 90, 132 SMs, driver 580.159, ...". For people.
  std::string description;
};

Environment EnvironmentOf(const DeviceInfo& device);
// Of collectives between all GPUs of the node.
Environment EnvironmentOfCollectives(Node& node);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_ENVIRONMENT_H_
