// Whose turn it is of sessions that wait for the same, so that nobody waits the longer the more
// sessions others have. Users take turns, and a user's sessions among themselves.
#ifndef CONCERT_DAEMON_SESSION_USER_TURNS_H_
#define CONCERT_DAEMON_SESSION_USER_TURNS_H_

#include <cstdint>
#include <list>
#include <optional>

#include "absl/container/flat_hash_map.h"

namespace concert::daemon {

// One thread. Takes as long whatever the number of those who wait.
class UserTurns {
 public:
  // This session, of this user, waits for a turn, behind others of the user; a user of whom nobody
  // waited waits behind other users. REQUIRES: it does not wait yet.
  void Want(uint32_t session, uint32_t uid);
  // It waits no more; nothing if it did not.
  void Forget(uint32_t session);
  // The next of the sessions, which waits no more. None if none waits.
  std::optional<uint32_t> Next();
  bool anybody_waits() const { return !users_.empty(); }

 private:
  // Of whom at least one session waits.
  struct User {
    uint32_t uid;
    std::list<uint32_t> sessions;  // whose turn is next first
  };
  using Users = std::list<User>;
  struct Place {
    Users::iterator user;
    std::list<uint32_t>::iterator session;
  };

  Users users_;  // whose turn is next first
  absl::flat_hash_map<uint32_t, Users::iterator> user_of_uid_;
  absl::flat_hash_map<uint32_t, Place> place_of_session_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_USER_TURNS_H_
