// Memory of a simulated GPU: sealed memfds that the daemon and the client both map.
#ifndef CONCERT_DAEMON_DEVICE_SIM_SIM_MEMORY_H_
#define CONCERT_DAEMON_DEVICE_SIM_SIM_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/device.h"

namespace concert::daemon::sim {

// Not thread-safe: SimDevice guards it. What is not freed stays mapped until the process ends.
class SimMemory {
 public:
  // `limit_bytes` is the size of the GPU: allocations and imports together stay below it, so that
  // no client can fill the machine through the daemon.
  SimMemory(int gpu, uint64_t limit_bytes) : gpu_(gpu), limit_bytes_(limit_bytes) {}

  absl::StatusOr<Allocation> Allocate(uint64_t bytes);

  // CONCERT_IMPORT_MEMFD only. The memfd must be sealed against shrinking: touching a page that its
  // owner cut off would kill the daemon with SIGBUS. So would a huge-page memfd of which the system
  // has no pages left, hence those are refused.
  absl::StatusOr<Allocation> Import(const ImportRequest& request);

  void Free(const Allocation& allocation);

  uint64_t used_bytes() const { return used_bytes_; }

 private:
  absl::StatusOr<Allocation> Map(int fd, uint64_t offset, uint64_t bytes);

  const int gpu_;
  const uint64_t limit_bytes_;
  uint64_t used_bytes_ = 0;
};

}  // namespace concert::daemon::sim

#endif  // CONCERT_DAEMON_DEVICE_SIM_SIM_MEMORY_H_
