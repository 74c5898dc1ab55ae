// A client's session as the control thread knows it.
#ifndef CONCERT_DAEMON_SESSION_SESSION_H_
#define CONCERT_DAEMON_SESSION_SESSION_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/sched/messages.h"
#include "daemon/session/packet.h"
#include "daemon/session/sealed_memory.h"
#include "daemon/session/session_memory.h"
#include "kernels/program/program.h"
#include "proto/unique_fd.h"

namespace concert::daemon {

// A buffer's handle: its entry in the session's table, and how often that was used before.
inline constexpr uint32_t kBufferIndexMask = kernels::kBufferIndexMask;
inline constexpr uint32_t kBufferGenerationMask = ~kBufferIndexMask >> kernels::kBufferIndexBits;
inline constexpr uint32_t BufferHandle(uint32_t index, uint16_t generation) {
  return uint32_t{generation} << kernels::kBufferIndexBits | index;
}

// What a buffer of that size holds of its user's quotas, but for its place in the table.
inline std::array<Charge, 3> BufferCharges(uint64_t bytes) {
  return {{{Resource::kBuffers, 1}, {Resource::kMappings, 1}, {Resource::kBufferBytes, bytes}}};
}

struct Session {
  enum class State {
    kOpen,
    kClosing,  // dispatchers are letting go of it
    kEnding,   // they have; its buffers are being freed
  };
  struct Queue {
    bool used = false;
    bool removing = false;
    int gpu = 0;
  };
  // An entry of the table of buffers. Entries are used again, with the next generation, so that the
  // table, which every dispatcher has too, is as large as the session ever needed at once.
  struct Buffer {
    Allocation allocation;
    std::optional<SealedMemory::Holding> sealed;  // whose allocation is above, and not its own
    bool used = false;
    int releases_due = 0;  // dispatchers that have not answered kReleaseBuffer
    // A program's arena, whose handle is the program's.
    std::shared_ptr<kernels::Program> program;
    uint32_t programs = 0;  // that use it
    bool given_up = false;  // by the client, while programs use it
  };

  uint32_t id = 0;
  uint32_t uid = 0;
  int32_t pid = 0;
  Account* account = nullptr;
  std::string name;
  int64_t connected_at_ns = 0;
  State state = State::kOpen;
  UniqueFd socket;

  std::unique_ptr<SessionMemory> memory;
  std::vector<UniqueFd> event_fds;  // by ring
  std::vector<int> gpus;            // by ring
  Address timelines_address = 0;
  bool timelines_registered = false;
  std::vector<Queue> queues;    // by index
  std::vector<Buffer> buffers;  // by index; 0 is never used
  // The same for ops, as dispatchers have it: of what the client has given up, and of programs, 0
  // bytes. Changes with requests of the session only, so its errand may read it meanwhile.
  std::vector<kernels::BufferRange> ranges;
  // Unused entries of `buffers`, the one that was given up longest ago first.
  std::deque<uint32_t> free_buffers;
  std::vector<std::pair<Membership, int>> memberships;  // and the rank's GPU
  // Of a session that is closing: dispatchers that have not answered kRemoveSession, and an errand.
  int releases_due = 0;
  bool awaits_errand = false;      // its turn
  std::unique_ptr<Packet> errand;  // the request, while the errand is under way

  // What of the above is in use.
  uint32_t queue_count = 0, buffer_count = 0;
  uint64_t buffer_bytes = 0, sealed_bytes = 0, shared_bytes = 0;  // as SessionSummary's
  // Indices into `buffers`; of batches: those that the library made of them (proto/ring).
  std::set<uint32_t> programs, batch_programs;
  uint32_t freed = 0;  // entries of `buffers` below are free: of a session that ends
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_SESSION_H_
