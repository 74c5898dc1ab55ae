// Memory of a GPU that the daemon makes for a user's sake and no client ever maps.
#ifndef CONCERT_DAEMON_SESSION_OWN_MEMORY_H_
#define CONCERT_DAEMON_SESSION_OWN_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"

namespace concert::daemon {

// The account is charged for it: Resource::kMappings and kBufferBytes. RESOURCE_EXHAUSTED: its
// quota, the machine or the GPU has no room. The threads of Device::Allocate, as the next.
absl::StatusOr<Allocation> AllocateOwn(Device& device, Account& account, uint64_t bytes);
// What AllocateOwn gave, and its charges. REQUIRES: no launched op uses it.
void FreeOwn(Device& device, Account& account, const Allocation& allocation);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_OWN_MEMORY_H_
