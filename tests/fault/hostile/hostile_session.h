// A session as an attacker wants it: many queues, descriptors staged by hand, nothing read back.
#ifndef CONCERT_TESTS_FAULT_HOSTILE_HOSTILE_SESSION_H_
#define CONCERT_TESTS_FAULT_HOSTILE_HOSTILE_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/fault/hostile/mode.h"
#include "tests/support/raw_client.h"

namespace concert::test {

class HostileSession {
 public:
  // Null if the daemon refuses. Fewer queues if it refuses some.
  static std::unique_ptr<HostileSession> Open(const std::string& socket, int queues);

  RawClient& client() { return client_; }
  uint32_t id() const { return client_.session(); }
  int queue_count() const { return static_cast<int>(queues_.size()); }
  // Handles of communicators of `ranks` in which this is rank 0 and nobody else ever joins.
  std::vector<uint32_t> JoinAlone(int count, uint32_t ranks);
  // Handles of buffers of so many bytes each, fewer if the daemon refuses some.
  std::vector<uint32_t> Allocate(int count, uint64_t bytes);
  // Handles of what became of these, each in its place; 0 for those that are as they were, because
  // the daemon refused them or one before.
  std::vector<uint32_t> Seal(const std::vector<uint32_t>& buffers);
  void Release(const std::vector<uint32_t>& buffers);

  // Descriptors that still fit.
  uint64_t Room() const;
  // Writes it to the next slot, as the next op of the queue. REQUIRES: Room() > 0.
  void Stage(int queue, concert_descriptor descriptor);
  // Gives the daemon what is staged, and room for completions.
  void Publish();
  // Ops staged to the queue that have not ended.
  uint64_t Unfinished(int queue) const;
  bool Closed() const;

 private:
  struct Queue {
    uint32_t index;
    uint64_t ticket;
  };

  explicit HostileSession(const std::string& socket) : client_(socket) {}

  RawClient client_;
  std::vector<Queue> queues_;
  uint64_t staged_ = 0;
};

using HostileSessions = std::vector<std::unique_ptr<HostileSession>>;

// As many as the daemon grants and the time allows.
HostileSessions OpenSessions(const Orders& orders, int queues);

concert_seal_buffer MakeSeal(uint32_t buffer);
// A copy within the buffer.
concert_descriptor MakeCopy(uint32_t buffer);
// This rank's part of a barrier.
concert_descriptor MakePart(uint32_t communicator, uint64_t sequence);

}  // namespace concert::test

#endif  // CONCERT_TESTS_FAULT_HOSTILE_HOSTILE_SESSION_H_
