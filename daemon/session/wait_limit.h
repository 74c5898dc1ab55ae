// Keeps system calls short that a client could make as long as it likes. Whoever closes the last
// descriptor of a socket waits for what was sent on it, if the socket says so (SO_LINGER), and
// clients can send descriptors of such: the daemon closes them, or the kernel with a client's
// socket or what has no room in a packet. Such a wait ends when a signal comes.
#ifndef CONCERT_DAEMON_SESSION_WAIT_LIMIT_H_
#define CONCERT_DAEMON_SESSION_WAIT_LIMIT_H_

#include <ctime>

namespace concert::daemon {

// Of the thread that makes it, which calls everything.
class WaitLimit {
 public:
  WaitLimit();
  ~WaitLimit();
  WaitLimit(const WaitLimit&) = delete;
  WaitLimit& operator=(const WaitLimit&) = delete;

  // From here on no call waits longer than a millisecond that a signal could end; calls that are to
  // be begun again are (SA_RESTART).
  void Set() { Signal(kLimitNs); }
  void Lift() { Signal(0); }

 private:
  static constexpr long kLimitNs = 1'000'000;

  void Signal(long every_ns);

  timer_t timer_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_WAIT_LIMIT_H_
