#include "daemon/quota/resource.h"

namespace concert::daemon {

const std::array<ResourceInfo, kResourceCount>& AllResources() {
  static constexpr std::array<ResourceInfo, kResourceCount> kTable = {{
      {.resource = Resource::kConnections,
       .name = "connections",
       .owner = "control",
       .limit = {.per_user = 64, .in_all = 1024},
       .beyond = "the user's oldest is closed"},
      {.resource = Resource::kSessions,
       .name = "sessions",
       .owner = "control",
       .limit = {.per_user = 256, .in_all = 1024},
       .setting = "max_sessions_per_uid",
       .setting_all = "max_sessions",
       .beyond = "refused"},
      {.resource = Resource::kQueues,
       .name = "queues",
       .owner = "control",
       .limit = {.per_user = 65'536, .in_all = 262'144},
       .beyond = "refused"},
      {.resource = Resource::kBuffers,
       .name = "buffers",
       .owner = "control",
       // Each is a mapping of the daemon on sim, which may have 65530 (vm.max_map_count) in all.
       .limit = {.per_user = 16'384, .in_all = 49'152},
       .setting = "max_buffers_per_uid",
       .beyond = "refused"},
      {.resource = Resource::kBufferBytes,
       .name = "buffer_bytes",
       .unit = "bytes",
       .owner = "control",
       .limit = {.per_user = uint64_t{1} << 40},
       .setting = "max_buffer_bytes_per_uid",
       .beyond = "refused"},
      {.resource = Resource::kBufferHandles,
       .name = "buffer_handles",
       .owner = "control",
       .limit = {.per_user = 1 << 20, .in_all = 1 << 22},
       .beyond = "refused"},
      {.resource = Resource::kMemberships,
       .name = "memberships",
       .owner = "control",
       .limit = {.per_user = 4096, .in_all = 16'384},
       .beyond = "refused"},
      {.resource = Resource::kOps,
       .name = "ops",
       .owner = "dispatcher",
       .limit = {},
       .per_turn = 64,
       .beyond = "stays in its ring"},
      {.resource = Resource::kWaits,
       .name = "waits",
       .owner = "dispatcher",
       .limit = {.per_user = 65'536, .in_all = 262'144},
       .beyond = "the op fails"},
      {.resource = Resource::kParts,
       .name = "parts",
       .owner = "dispatcher, issuer",
       .limit = {.per_user = 4096, .in_all = 16'384},
       .beyond = "the part waits in its queue"},
      {.resource = Resource::kWatches,
       .name = "watches",
       .owner = "gRPC",
       .limit = {.per_user = 16, .in_all = 32},
       .beyond = "refused"},
  }};
  return kTable;
}

Limits DefaultLimits() {
  Limits limits;
  for (const ResourceInfo& info : AllResources()) {
    limits[static_cast<size_t>(info.resource)] = info.limit;
  }
  return limits;
}

}  // namespace concert::daemon
