// What one thread has for another, where it must not wait: a mailbox and, behind it and in order,
// what had no room there. Whoever uses one says what bounds it.
#ifndef CONCERT_DAEMON_SCHED_OUTBOX_H_
#define CONCERT_DAEMON_SCHED_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "daemon/sched/mailbox.h"

namespace concert::daemon {

// Sender thread only.
template <typename T>
class Outbox {
 public:
  // Leaves room for `others` messages that somebody else must always find. `mailbox` outlives it.
  explicit Outbox(Mailbox<T>& mailbox, uint32_t others = 0) : mailbox_(mailbox), others_(others) {}

  // What has no room is late: Send sends it.
  void Push(const T& message) {
    if (!TryPush(message)) late_.push_back(message);
  }
  // False, and nothing is kept, if there is no room.
  bool TryPush(const T& message) { return late_.empty() && SendNow(message); }
  // Sends what is late, as far as there is room. True if any was.
  bool Send() {
    const size_t before = late_.size();
    while (!late_.empty() && SendNow(late_.front())) late_.pop_front();
    return late_.size() < before;
  }
  size_t late() const { return late_.size(); }

 private:
  bool SendNow(const T& message) {
    return (others_ == 0 || mailbox_.HasRoom(others_ + 1)) && mailbox_.TryPush(message);
  }

  Mailbox<T>& mailbox_;
  const uint32_t others_;
  std::deque<T> late_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_OUTBOX_H_
