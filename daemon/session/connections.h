// Sockets that have not said Hello. They are cheap, so that a user gets many, and worth nothing, so
// that the oldest gives way: a client says Hello at once, and who keeps silent on many sockets
// locks out nobody but itself.
//
// One that gave way is closed kLeavesAfterNs later. Nothing is done for it any more, but whoever
// holds it does not connect again before it is closed, so that it costs the control thread ten
// evictions a second. Closed at once, 256 such sockets took 40 % of a CPU here and as much of their
// own (2 CPUs), and what waited to be accepted was never less than 192.
//
// Control thread only.
#ifndef CONCERT_DAEMON_SESSION_CONNECTIONS_H_
#define CONCERT_DAEMON_SESSION_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>

#include "daemon/quota/account.h"
#include "proto/unique_fd.h"

namespace concert::daemon {

struct Connection {
  uint64_t key = 0;
  UniqueFd socket;
  Account* account = nullptr;  // charged with a connection and a descriptor
  int32_t pid = 0;
  int64_t since_ns = 0;
};

class Connections {
 public:
  // Keys are above those of sessions, which have 32 bits, and never come twice.
  static constexpr uint64_t kFirstKey = uint64_t{1} << 33;
  static constexpr int64_t kLeavesAfterNs = 100'000'000;
  static constexpr size_t kMostLeaving = 1024;  // beyond, the first is closed early

  // `epoll`, which outlives this, watches the sockets under their keys.
  explicit Connections(int epoll) : epoll_(epoll) {}

  // Charges `account`; where that exceeds a limit, the oldest connection of the user gives way, or
  // of the user with most. Null, with the socket closed, if there is none that could, or the socket
  // cannot be watched.
  Connection* Add(UniqueFd socket, int32_t pid, Account& account, int64_t now_ns);
  Connection* Find(uint64_t key);
  // Removes it. The charge for its descriptor passes to the caller with the socket.
  Connection Take(uint64_t key);
  void Close(uint64_t key);
  // Closes the first that gave way or, if there is none, the oldest of the user with most. False if
  // there is none either.
  bool CloseOne();
  // Closes those that came before `before_ns`; looks at no others. Returns how many.
  size_t CloseOlderThan(int64_t before_ns);
  // Closes those whose time to leave has come.
  void CloseLeaving(int64_t now_ns);

  size_t size() const { return all_.size(); }
  uint64_t evicted() const { return evicted_; }

 private:
  struct Leaving {
    Connection connection;  // charged with a descriptor
    int64_t closes_ns;
  };

  // Who gives way where `account` may have no more of the resource; 0: nobody.
  uint64_t OldestFor(const Account& account, Resource resource) const;
  uint64_t OldestOfMost() const;
  void Evict(uint64_t key, int64_t now_ns);
  bool CloseFirstLeaving();

  const int epoll_;
  std::map<uint64_t, Connection> all_;              // by key: in order of arrival
  std::map<uint32_t, std::set<uint64_t>> keys_of_;  // by uid
  std::deque<Leaving> leaving_;                     // in the order of closing
  uint64_t next_key_ = kFirstKey;
  uint64_t evicted_ = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_CONNECTIONS_H_
