// What a client can make the daemon spend: one row per resource with its owner, how much a user may
// hold, how much all users together may, and how much is done about it in one turn. Everything that
// a client's request or descriptor takes is charged to its user's Account (account.h) under one of
// these, so that nobody can use up what others need. docs/operations.md and `concertctl quotas`
// show this table; to add a resource, add an enumerator and a row in resource.cc.
#ifndef CONCERT_DAEMON_QUOTA_RESOURCE_H_
#define CONCERT_DAEMON_QUOTA_RESOURCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace concert::daemon {

enum class Resource : uint8_t {
  kConnections,    // sockets that have not said Hello
  kSessions,       // open sessions, with their shared memory and rings
  kQueues,         // queues of sessions
  kBuffers,        // registered buffers; a mapping of the daemon each
  kBufferBytes,    // registered bytes
  kBufferHandles,  // handles given out to sessions that are open; never reused within one
  kMemberships,    // ranks' places in communicators
  kOps,            // admitted and unfinished ops
  kWaits,          // waits of unfinished ops that are not met
  kParts,          // parts of collectives that the rendezvous holds or remembers
  kWatches,        // streams of the admin API
  kCount,
};
inline constexpr size_t kResourceCount = static_cast<size_t>(Resource::kCount);
inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

struct Limit {
  uint64_t per_user = kUnlimited;
  uint64_t in_all = kUnlimited;
};

struct ResourceInfo {
  Resource resource;
  std::string_view name;         // "buffer_bytes"
  std::string_view unit;         // "bytes"; empty: a count
  std::string_view owner;        // the thread that charges it
  Limit limit;                   // the defaults
  std::string_view setting;      // of the configuration, for per_user; empty: fixed
  std::string_view setting_all;  // the same for in_all
  uint64_t per_turn = 0;         // how many are taken or examined per turn and session; 0: no turns
  std::string_view beyond;       // what happens to a request beyond the limit
};

// One row per resource, in the order of the enumerators.
const std::array<ResourceInfo, kResourceCount>& AllResources();
inline const ResourceInfo& InfoOf(Resource resource) {
  return AllResources()[static_cast<size_t>(resource)];
}

using Limits = std::array<Limit, kResourceCount>;
Limits DefaultLimits();

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_QUOTA_RESOURCE_H_
