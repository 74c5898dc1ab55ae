#include "daemon/session/errand_turns.h"

#include <algorithm>
#include <utility>

namespace concert::daemon {

void ErrandTurns::Forget(uint32_t session) {
  std::erase_if(wanting_, [&](const Wanting& one) { return one.session == session; });
}

std::optional<uint32_t> ErrandTurns::Next() {
  if (wanting_.empty()) return std::nullopt;
  const auto last = [](const LastTurns& turns, uint32_t who) {
    const auto found = turns.find(who);
    return found == turns.end() ? 0 : found->second;
  };
  const auto waited_since = [&](const Wanting& one) {
    return std::pair(last(users_, one.uid), last(sessions_, one.session));
  };
  const auto first = std::min_element(
      wanting_.begin(), wanting_.end(),
      [&](const Wanting& a, const Wanting& b) { return waited_since(a) < waited_since(b); });
  const Wanting next = *first;
  wanting_.erase(first);
  ++turn_;
  for (const auto& [turns, who] : {std::pair(&users_, next.uid), {&sessions_, next.session}}) {
    (*turns)[who] = turn_;
    std::erase_if(*turns, [&](const auto& entry) { return turn_ - entry.second >= kRemembered; });
  }
  return next.session;
}

}  // namespace concert::daemon
