// Whose errand is next (errands.h), so that nobody waits the longer the more sessions others have.
#ifndef CONCERT_DAEMON_SESSION_ERRAND_TURNS_H_
#define CONCERT_DAEMON_SESSION_ERRAND_TURNS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace concert::daemon {

// One thread.
class ErrandTurns {
 public:
  // Turns after which it is forgotten that somebody had one.
  static constexpr uint64_t kRemembered = 256;

  // This session, of this user, waits for a turn. REQUIRES: it does not yet.
  void Want(uint32_t session, uint32_t uid) { wanting_.push_back({session, uid}); }
  // It waits no more; nothing if it did not.
  void Forget(uint32_t session);
  // One of the sessions that wait, which waits no more: one of the user who had a turn longest ago,
  // so that a user with many has no more turns than one with one; of that user's the one that had a
  // turn longest ago. None if none waits.
  std::optional<uint32_t> Next();
  bool anybody_waits() const { return !wanting_.empty(); }

  // Users and sessions whose turns are remembered.
  size_t remembered() const { return users_.size() + sessions_.size(); }

 private:
  struct Wanting {
    uint32_t session;
    uint32_t uid;
  };
  using LastTurns = std::map<uint32_t, uint64_t>;

  std::vector<Wanting> wanting_;
  uint64_t turn_ = 0;
  LastTurns users_, sessions_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_ERRAND_TURNS_H_
