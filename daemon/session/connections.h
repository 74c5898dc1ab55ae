// Sockets that have not said Hello. They are cheap, so that a user gets many, and worth nothing, so
// that the oldest gives way: a client says Hello at once, and who keeps silent on many sockets
// locks out nobody but itself. Control thread only.
#ifndef CONCERT_DAEMON_SESSION_CONNECTIONS_H_
#define CONCERT_DAEMON_SESSION_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
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

  // Charges `account`; where that exceeds a limit, the oldest connection of the user goes, or of
  // the user with most. Null, with the socket closed, if there is none that could go.
  Connection* Add(UniqueFd socket, int32_t pid, Account& account, int64_t now_ns);
  Connection* Find(uint64_t key);
  // Removes it. The charge for its descriptor passes to the caller with the socket.
  Connection Take(uint64_t key);
  void Close(uint64_t key);
  // Closes the oldest connection of the user with most. False if there is none.
  bool CloseOneOfMost();
  // Closes those that came before `before_ns`; looks at no others. Returns how many.
  size_t CloseOlderThan(int64_t before_ns);

  size_t size() const { return all_.size(); }
  uint64_t evicted() const { return evicted_; }

 private:
  bool CloseOldestOf(uint32_t uid);

  std::map<uint64_t, Connection> all_;              // by key: in order of arrival
  std::map<uint32_t, std::set<uint64_t>> keys_of_;  // by uid
  uint64_t next_key_ = kFirstKey;
  uint64_t evicted_ = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_CONNECTIONS_H_
