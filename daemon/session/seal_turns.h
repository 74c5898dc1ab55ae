// Whose turn it is to seal a buffer, which takes the control thread milliseconds: so many a turn of
// its loop (Work::kSeals), whatever the number of sessions that want to.
#ifndef CONCERT_DAEMON_SESSION_SEAL_TURNS_H_
#define CONCERT_DAEMON_SESSION_SEAL_TURNS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace concert::daemon {

// One thread.
class SealTurns {
 public:
  // Turns after which it is forgotten that somebody had one.
  static constexpr uint64_t kRemembered = 256;

  // This session, of this user, has a request to seal. It says so in every turn until it was its
  // own.
  void Want(uint32_t session, uint32_t uid) { wanting_.push_back({session, uid}); }
  // One of the sessions that want to in this turn, which wants no more: one of the user who had a
  // turn longest ago, so that a user with many has no more turns than one with one; of that user's
  // the one that had a turn longest ago. None if none wants to.
  std::optional<uint32_t> Next();
  void EndTurn() { wanting_.clear(); }

  // Users and sessions that are remembered.
  size_t size() const { return users_.size() + sessions_.size(); }

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

#endif  // CONCERT_DAEMON_SESSION_SEAL_TURNS_H_
