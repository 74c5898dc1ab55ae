// What the machine and the process's limits leave for clients. Past them, mmap and operator new
// fail anywhere in the process, so clients are refused before, and a reserve is kept.
#ifndef CONCERT_DAEMON_QUOTA_MACHINE_H_
#define CONCERT_DAEMON_QUOTA_MACHINE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "daemon/quota/resource.h"

namespace concert::daemon {

// Limits kMappings and kDescriptors to what is left now of vm.max_map_count and RLIMIT_NOFILE, less
// an eighth that stays with the daemon; one user may hold half of that.
void FitToMachine(Limits& limits);

// Address space (RLIMIT_AS, strict overcommit). Holds a reserve that operator new gets when it
// would fail, so that a request under way is finished; from then until the reserve can be had
// again, clients get nothing. One per process at a time; any thread.
class MemoryReserve {
 public:
  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Whether a client may be given `bytes` more: tried by mapping them, which costs two system
  // calls.
  static bool Allows(uint64_t bytes);
};

// RESOURCE_EXHAUSTED, for clients: MemoryReserve does not allow what they want.
absl::Status OutOfMemory();

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_QUOTA_MACHINE_H_
