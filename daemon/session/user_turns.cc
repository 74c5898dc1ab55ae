#include "daemon/session/user_turns.h"

namespace concert::daemon {

void UserTurns::Want(uint32_t session, uint32_t uid) {
  const auto [entry, is_new] = user_of_uid_.try_emplace(uid, users_.end());
  if (is_new) entry->second = users_.insert(users_.end(), {uid, {}});
  const Users::iterator user = entry->second;
  place_of_session_[session] = {user, user->sessions.insert(user->sessions.end(), session)};
}

void UserTurns::Forget(uint32_t session) {
  const auto found = place_of_session_.find(session);
  if (found == place_of_session_.end()) return;
  const auto [user, place] = found->second;
  place_of_session_.erase(found);
  user->sessions.erase(place);
  if (!user->sessions.empty()) return;
  user_of_uid_.erase(user->uid);
  users_.erase(user);
}

std::optional<uint32_t> UserTurns::Next() {
  if (users_.empty()) return std::nullopt;
  const Users::iterator user = users_.begin();
  const uint32_t session = user->sessions.front();
  users_.splice(users_.end(), users_, user);
  Forget(session);
  return session;
}

}  // namespace concert::daemon
