#include "daemon/quota/resource.h"

#include "absl/strings/str_cat.h"
#include "daemon/config/defaults.h"

namespace concert::daemon {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// "16384 (`max_buffers_per_uid`)"
std::string LimitText(uint64_t limit, std::string_view setting, std::string_view machine) {
  if (!machine.empty()) return std::string(machine);
  const std::string number = limit == kUnlimited ? "-" : absl::StrCat(limit);
  return setting.empty() ? number : absl::StrCat(number, " (`", View(setting), "`)");
}

}  // namespace

const std::array<ResourceInfo, kResourceCount>& AllResources() {
  static constexpr std::array<ResourceInfo, kResourceCount> kTable = {{
      {.resource = Resource::kConnections,
       .name = "connections",
       .owner = "control",
       .limit = {.per_user = 64, .in_all = 1024},
       .beyond =
           "the oldest gives way, and is closed a tenth of a second later: the user's own, else "
           "that of the user with most"},
      {.resource = Resource::kSessions,
       .name = "sessions",
       .owner = "control",
       .limit = {.per_user = defaults::kMaxSessionsPerUid, .in_all = defaults::kMaxSessions},
       .setting = "max_sessions_per_uid",
       .setting_all = "max_sessions",
       .beyond = "refused"},
      {.resource = Resource::kDescriptors,
       .name = "descriptors",
       .owner = "control",
       .machine = "`RLIMIT_NOFILE`",
       .beyond = "refused"},
      {.resource = Resource::kMappings,
       .name = "mappings",
       .owner = "control",
       .machine = "`vm.max_map_count`",
       .beyond = "refused"},
      {.resource = Resource::kQueues,
       .name = "queues",
       .owner = "control",
       .limit = {.per_user = 65'536, .in_all = 262'144},
       .beyond = "refused"},
      {.resource = Resource::kBuffers,
       .name = "buffers",
       .owner = "control",
       .limit = {.per_user = defaults::kMaxBuffersPerUid},
       .setting = "max_buffers_per_uid",
       .beyond = "refused"},
      {.resource = Resource::kBufferBytes,
       .name = "buffer_bytes",
       .owner = "control",
       .limit = {.per_user = defaults::kMaxBufferBytesPerUid},
       .setting = "max_buffer_bytes_per_uid",
       .beyond = "refused"},
      {.resource = Resource::kBufferHandles,
       .name = "buffer_handles",
       .owner = "control",
       .limit = {.per_user = 65'536, .in_all = 1 << 20},
       .beyond = "refused"},
      {.resource = Resource::kMemberships,
       .name = "memberships",
       .owner = "control, issuer",
       .limit = {.per_user = 4096, .in_all = 16'384},
       .beyond = "refused"},
      {.resource = Resource::kOps,
       .name = "ops",
       .owner = "dispatcher",
       .limit = {.per_user = 65'536, .in_all = 262'144},
       .beyond = "stays in its ring"},
      {.resource = Resource::kWaits,
       .name = "waits",
       .owner = "dispatcher",
       .limit = {.per_user = 65'536, .in_all = 262'144},
       .beyond = "the op fails"},
      {.resource = Resource::kParts,
       .name = "parts",
       .owner = "dispatcher",
       .limit = {.per_user = 4096, .in_all = 16'384},
       .beyond = "the part waits in its queue"},
      {.resource = Resource::kRefusals,
       .name = "refusals",
       .owner = "issuer",
       .limit = {.per_user = 16'384, .in_all = 65'536},
       .beyond = "the communicator fails, until its ranks join anew"},
      {.resource = Resource::kWatches,
       .name = "watches",
       .owner = "gRPC",
       .limit = {.per_user = 32, .in_all = 32},
       .beyond = "refused"},
      {.resource = Resource::kProgramOps,
       .name = "program_ops",
       .owner = "control",
       .limit = {.per_user = 262'144, .in_all = 1 << 20},
       .beyond = "refused"},
  }};
  return kTable;
}

Limits::Limits() {
  for (const ResourceInfo& info : AllResources()) (*this)[info.resource] = info.limit;
}

std::string RenderQuotas() {
  std::string out =
      "| Resource | Per user | In all | Charged by | Beyond |\n"
      "|---|---|---|---|---|\n";
  for (const ResourceInfo& info : AllResources()) {
    const std::string own =
        info.machine.empty() ? LimitText(info.limit.per_user, info.setting, {}) : "half of all";
    absl::StrAppend(&out, "| `", View(info.name), "` | ", own, " | ",
                    LimitText(info.limit.in_all, info.setting_all, info.machine), " | ",
                    View(info.owner), " | ", View(info.beyond), " |\n");
  }
  return out;
}

}  // namespace concert::daemon
