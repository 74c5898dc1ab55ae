// A dispatcher's end of one session: the ring it reads, the completions and timelines it writes,
// and the handles (queues, buffers, communicators) that the session's ops may name. Dispatcher
// thread only.
#ifndef CONCERT_DAEMON_SCHED_SESSION_PORT_H_
#define CONCERT_DAEMON_SCHED_SESSION_PORT_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "daemon/sched/block_charge.h"
#include "daemon/sched/company.h"
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
  // Whether the client must ring its eventfd. Idempotent.
  void SetSleeping(bool sleeping);
  bool sleeping() const { return sleeping_; }
  // What other queues are at work with, as concert_company. Idempotent.
  void SetCompany(uint32_t company);
  bool TailMoved() const { return LoadAcquire(*tail_word_) != tail_; }
  // Whether something published has not been consumed.
  bool TailPending() const { return tail_ != head_; }
  uint64_t tail() const { return tail_; }  // as last read
  uint64_t head() const { return head_; }

  // --- Completions and timelines ---

  void PublishCompletion(const kernels::Op& op, const kernels::Failure& failure);
  const uint64_t& timeline(uint32_t queue) const { return link_.memory->timeline(queue); }
  TimelineWrite TimelineWriteFor(uint32_t queue, uint64_t ticket) const {
    return {link_.timelines_address + queue * sizeof(concert_timeline), ticket};
  }
  // Raises the timeline from the CPU; never lowers it.
  void AdvanceTimeline(uint32_t queue, uint64_t ticket);
  // Once after any number of advances, whoever made them, and before Sleepers of their queues.
  static void FenceBeforeWake();
  // How many threads the client says to sleep on the queue's timeline.
  uint32_t Sleepers(uint32_t queue) const;
  // Wakes at most so many of them, a system call. Returns how many it were: fewer if no more sleep.
  uint32_t Wake(uint32_t queue, uint32_t most);

  // --- Handles ---

  std::vector<QueueEntry> queues;             // by index in the session
  std::vector<kernels::BufferRange> buffers;  // by handle
  std::vector<uint32_t> buffer_uses;          // by handle: ops that have not ended
  std::vector<bool> buffer_releasing;         // by handle
  std::vector<Member> members;
  // By index of a queue, then of a user timeline: its entry in Watches; kNone if nothing waits.
  std::vector<uint32_t> watched;
  LatestQueues at_work;      // of this session
  uint32_t unfinished = 0;   // admitted ops that have not ended
  BlockCharge ops, waits;    // what of it the user's account knows
  bool removing = false;     // the control thread waits for kSessionReleased
  bool broken = false;       // the ring is not read any more
  uint64_t drain_end = 0;    // position of the ring: what was published before the drain began
  uint32_t open_queues = 0;  // while it is removed: queues that have not ended
  uint32_t cancelled = 0;    // while it is removed: queues and watched words dealt with

  // From when on the control thread is told of one, for the log.
  policies::Time next_race = 0;

  // A queue or buffer that the client has given up, while what it published before may use it.
  struct Removal {
    enum class What : uint8_t { kQueue, kBuffer };
    What what;
    uint32_t handle;    // index of the queue, or buffer
    uint64_t position;  // of the ring
  };
  std::deque<Removal> removals;  // oldest first
  bool letting_go = false;       // some are due, and the dispatcher goes on with them

  // Its place among the rings (rings.h).
  struct RingPlace {
    uint32_t index = 0;  // in the list of hot or of cold rings
    bool hot = false;
    policies::Time news_at = 0;
    uint32_t user = 0;
    bool listed = false;  // among those whose turn it is
    bool stuck = false;
    bool asked = false;  // for the bell, and not looked at since
    SessionPort *previous = nullptr, *next = nullptr;
  } place;

  Member* FindMember(uint32_t handle);

 private:
  const SessionLink link_;
  const uint64_t* tail_word_ = nullptr;
  bool sleeping_ = false;
  uint32_t company_ = 0;
  uint64_t tail_ = 0;  // as last read
  uint64_t head_ = 0;
  uint64_t published_head_ = 0;
  uint64_t completion_tail_ = 0;
  uint64_t completion_head_ = 0;  // as last read
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_SESSION_PORT_H_
