// What a client can make the daemon keep: one row per resource with its owner, how much a user may
// hold, and how much all users together may; what is done in one turn is in budget.h. Everything
// that a client's request or descriptor takes is charged to its user's Account (account.h) under
// one of these, so that nobody can use up what others need. docs/operations.md and `concertctl
// quotas` show this table; to add a resource, add an enumerator, a row in resource.cc and a case in
// tests/fault/quota_test.cc (docs/adr/0015-quotas.md).
#ifndef CONCERT_DAEMON_QUOTA_RESOURCE_H_
#define CONCERT_DAEMON_QUOTA_RESOURCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace concert::daemon {

enum class Resource : uint8_t {
  kConnections,    // sockets that have not said Hello
  kSessions,       // open sessions, with their shared memory and rings
  kDescriptors,    // file descriptors of connections and sessions
  kMappings,       // memory mappings of sessions (two each) and buffers (one each)
  kQueues,         // queues of sessions
  kBuffers,        // registered buffers
  kBufferBytes,    // registered bytes
  kBufferHandles,  // entries of sessions' tables of buffers: as many as it had at once
  kMemberships,    // ranks' places in communicators
  kOps,            // admitted and unfinished ops
  kWaits,          // waits of unfinished ops that are not met
  kParts,          // parts of collectives that the rendezvous holds
  kRefusals,       // collectives that failed and that some rank has not come to
  kWatches,        // streams of the admin API
  kProgramOps,     // ops of registered programs, which are kept with their addresses
  kCount,
};
inline constexpr size_t kResourceCount = static_cast<size_t>(Resource::kCount);
inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

struct Limit {
  uint64_t per_user = kUnlimited;
  uint64_t in_all = kUnlimited;

  // Of in_all, what only users who hold `little` may take: room for a user or more to begin with
  // when a few others have taken all they get. Nothing where one user may have everything.
  uint64_t kept() const { return per_user < in_all ? in_all / 8 : 0; }
  uint64_t little() const { return in_all / 64; }
};

struct ResourceInfo {
  Resource resource;
  std::string_view name;         // "buffer_bytes"
  std::string_view owner;        // who charges it
  Limit limit;                   // the defaults
  std::string_view setting;      // of the configuration, for per_user; empty: fixed
  std::string_view setting_all;  // the same for in_all
  std::string_view machine;      // what of the machine bounds in_all (machine.h); empty: nothing
  std::string_view beyond;       // what happens to a request beyond the limit
};

// One row per resource, in the order of the enumerators.
const std::array<ResourceInfo, kResourceCount>& AllResources();
inline const ResourceInfo& InfoOf(Resource resource) {
  return AllResources()[static_cast<size_t>(resource)];
}

class Limits {
 public:
  // The defaults.
  Limits();
  Limit& operator[](Resource resource) { return limits_[static_cast<size_t>(resource)]; }
  const Limit& operator[](Resource resource) const {
    return limits_[static_cast<size_t>(resource)];
  }

 private:
  std::array<Limit, kResourceCount> limits_;
};

// The table in Markdown, for docs/operations.md.
std::string RenderQuotas();

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_QUOTA_RESOURCE_H_
