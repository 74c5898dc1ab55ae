// The rings of a dispatcher: which to look at, and whose turn it is.
//
// Looking. Up to kAlwaysHot rings, and those with news in the last kHotNs, are hot: they are looked
// at all the time. The others are cold: a few of them each time, in turn, so that however many
// there are they cost the same. Cold rings ring the bell (SessionPort::SetSleeping) whether the
// dispatcher sleeps or not, hot ones only while it does, so that a sleep, too, costs what is hot.
//
// Turns. Rings with something published take turns by user, and those of a user among themselves:
// a user gains nothing by more sessions.
#ifndef CONCERT_DAEMON_SCHED_RINGS_H_
#define CONCERT_DAEMON_SCHED_RINGS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/quota/budget.h"
#include "daemon/sched/session_port.h"

namespace concert::daemon {

// Allocates only in Add. Not thread-safe; the dispatcher's.
class Rings {
 public:
  using Time = policies::Time;
  static constexpr size_t kAlwaysHot = 8;
  static constexpr Time kHotNs = 1'000'000;
  static constexpr auto kColdPerLook = PerTurn<size_t>(Work::kColdRings);
  static constexpr size_t kColdPerHasWork = 4;

  void Add(SessionPort& port, Time now);
  // Of a session that ends; nothing of it is read any more.
  void Remove(SessionPort& port);
  bool empty() const { return hot_.empty() && cold_.empty(); }

  // --- Looking ---

  // Whether a ring that is looked at has news.
  bool HasWork();
  // Calls look(port) for each hot ring and the next cold ones, for all with `all`; true: it has
  // news. Those that have something published get a turn.
  template <typename Look>
  void LookAt(Time now, bool all, Look look) {
    for (size_t i = hot_.size(); i > 0; --i) {
      SessionPort& port = *hot_[i - 1];
      if (look(port)) {
        HasNews(port, now);
      } else if (now - port.place.news_at > kHotNs && hot_.size() > kAlwaysHot) {
        Cool(port);
      }
      if (port.TailPending()) List(port);
    }
    for (size_t i = all ? cold_.size() : std::min(cold_.size(), kColdPerLook); i > 0; --i) {
      if (cold_.empty()) break;
      SessionPort& port = NextCold();
      if (look(port)) HasNews(port, now);
      if (port.TailPending()) List(port);
    }
  }
  void HasNews(SessionPort& port, Time now);

  // --- Turns ---

  // Gives the ring a turn, if something of it is published and it has none yet.
  void List(SessionPort& port);
  // Whose turn it is; null: nobody's.
  SessionPort* Next();
  bool listed() const { return first_user_ != kNone; }
  // Something of the ring is published and cannot be admitted: nothing says when it can.
  void SetStuck(SessionPort& port, bool stuck);
  bool any_stuck() const { return stuck_ > 0; }

  // --- Sleeping ---

  // From here on every ring rings the bell.
  void AskForBell();
  // Whether a ring that was asked since the last sleep has news that it may not have rung for; it
  // is hot then. REQUIRES: since AskForBell a full fence, which pairs with the client's between
  // storing its tail and loading `sleeping`.
  bool FindNews(Time now);
  // Hot rings need not ring any more. One whose bell rang must have been given to HasNews: bells
  // are heard once.
  void EndSleep();

 private:
  // A user with sessions here, and those whose turn it is.
  struct User {
    uint32_t uid = 0;
    uint32_t sessions = 0;
    SessionPort *first = nullptr, *last = nullptr;
    bool listed = false;
    uint32_t next = kNone;  // the next user
  };

  void Enlist(std::vector<SessionPort*>& list, SessionPort& port);
  void Delist(SessionPort& port);
  void Cool(SessionPort& port);
  void Ask(SessionPort& port);
  SessionPort& NextCold();
  void ListUser(uint32_t user);
  void Unlist(SessionPort& port);

  std::vector<SessionPort*> hot_, cold_;
  std::vector<SessionPort*> asked_;  // for the bell, since the last sleep
  size_t next_cold_ = 0;
  uint32_t stuck_ = 0;
  std::vector<User> users_;
  std::vector<uint32_t> free_users_;
  absl::flat_hash_map<uint32_t, uint32_t> user_of_uid_;
  uint32_t first_user_ = kNone, last_user_ = kNone;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_RINGS_H_
