// A client's connection as the control thread knows it.
#ifndef CONCERT_DAEMON_SESSION_SESSION_H_
#define CONCERT_DAEMON_SESSION_SESSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/sched/messages.h"
#include "daemon/session/session_memory.h"
#include "daemon/session/unique_fd.h"

namespace concert::daemon {

struct Session {
  enum class State {
    kConnected,  // accepted; Hello has not come
    kOpen,
    kClosing,  // dispatchers are letting go of it
  };
  struct Buffer {
    Allocation allocation;
    uint64_t charged_bytes = 0;  // to its uid's quota
    int releases_due = 0;        // dispatchers that have not answered kReleaseBuffer
  };
  struct Queue {
    bool used = false;
    bool removing = false;
    int gpu = 0;
  };

  uint32_t id = 0;
  uint32_t uid = 0;
  int32_t pid = 0;
  std::string name;
  int64_t connected_at_ns = 0;
  State state = State::kConnected;
  UniqueFd socket;

  // From Hello on.
  std::unique_ptr<SessionMemory> memory;
  std::vector<UniqueFd> event_fds;  // by ring
  std::vector<int> gpus;            // by ring
  Address timelines_address = 0;
  bool timelines_registered = false;
  std::vector<Queue> queues;           // by index
  std::map<uint32_t, Buffer> buffers;  // by handle
  uint32_t next_buffer = 1;
  std::vector<std::pair<Membership, int>> memberships;  // and the rank's GPU
  int releases_due = 0;  // dispatchers that have not answered kRemoveSession
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_SESSION_H_
