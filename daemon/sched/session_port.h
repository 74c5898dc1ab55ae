// A dispatcher's end of one session: the ring it reads, the completions and timelines it writes,
// and the handles (queues, buffers, communicators) that the session's ops may name. Dispatcher
// thread only.
#ifndef CONCERT_DAEMON_SCHED_SESSION_PORT_H_
#define CONCERT_DAEMON_SCHED_SESSION_PORT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/sched/messages.h"
#include "daemon/sched/op_pool.h"
#include "kernels/op_table.h"

namespace concert::daemon {

class SessionPort {
 public:
  struct QueueEntry {
    QueueId id = kNone;  // in the scheduler
    uint64_t next_ticket = 1;
    bool removing = false;
  };
  struct Member {
    Membership membership;
    uint64_t next_sequence = 0;
  };

  explicit SessionPort(const SessionLink& link);

  const SessionLink& link() const { return link_; }
  bool has_ring() const { return link_.ring >= 0; }

  // --- The submission ring ---

  // Reads the tail (acquire). False, with `broken` set, if the client wrote one that cannot be.
  bool ReadTail(kernels::Failure& broken);
  // Descriptors that may be consumed now: published, and with a completion slot to spare for each.
  uint32_t Available(kernels::Failure& broken);
  // Copies the next descriptor, once. False, with `broken` set, if it is torn, stale or replayed.
  bool Read(concert_descriptor& descriptor, kernels::Failure& broken);
  // Gives consumed slots back to the client.
  void PublishHead();
  void SetSleeping(bool sleeping);
  bool TailMoved() const;
  // Whether something published has not been consumed.
  bool TailPending() const { return tail_ != head_; }
  uint64_t tail() const { return tail_; }  // as last read
  uint64_t head() const { return head_; }

  // --- Completions and timelines ---

  void PublishCompletion(uint32_t queue, uint64_t ticket, const kernels::Failure& failure);
  const uint64_t& timeline(uint32_t queue) const { return link_.memory->timeline(queue); }
  TimelineWrite TimelineWriteFor(uint32_t queue, uint64_t ticket) const {
    return {link_.timelines_address + queue * sizeof(concert_timeline), ticket};
  }
  // Raises the timeline from the CPU; never lowers it.
  void AdvanceTimeline(uint32_t queue, uint64_t ticket);
  // Once after any number of advances, whoever made them, and before their WakeWaiters.
  static void FenceBeforeWake();
  // Wakes threads of the client that sleep on the queue's timeline. After every advance.
  void WakeWaiters(uint32_t queue);

  // --- Handles ---

  std::vector<QueueEntry> queues;             // by index in the session
  std::vector<kernels::BufferRange> buffers;  // by handle
  std::vector<uint32_t> buffer_uses;          // by handle: ops that have not ended
  std::vector<bool> buffer_releasing;         // by handle
  std::vector<Member> members;
  uint32_t unfinished = 0;  // admitted ops that have not ended
  bool removing = false;    // the control thread waits for kSessionReleased
  bool broken = false;      // the ring is not read any more

  Member* FindMember(uint32_t handle);

 private:
  const SessionLink link_;
  uint64_t tail_ = 0;  // as last read
  uint64_t head_ = 0;
  uint64_t published_head_ = 0;
  uint64_t completion_tail_ = 0;
  uint64_t completion_head_ = 0;  // as last read
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_SESSION_PORT_H_
