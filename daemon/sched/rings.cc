#include "daemon/sched/rings.h"

#include <algorithm>
#include <vector>

namespace concert::daemon {

void Rings::Add(SessionPort& port, Time now) {
  auto [entry, added] = user_of_uid_.try_emplace(port.link().uid, 0);
  if (added) {
    if (free_users_.empty()) {
      free_users_.push_back(static_cast<uint32_t>(users_.size()));
      users_.emplace_back();
      free_users_.reserve(users_.capacity());
    }
    entry->second = free_users_.back();
    free_users_.pop_back();
    users_[entry->second].uid = port.link().uid;
  }
  ++users_[entry->second].sessions;
  port.place.user = entry->second;
  port.place.news_at = now;
  hot_.reserve(hot_.size() + cold_.size() + 1);
  cold_.reserve(hot_.capacity());
  asked_.reserve(hot_.capacity());
  Enlist(hot_, port);
  port.place.hot = true;
}

void Rings::Remove(SessionPort& port) {
  Unlist(port);
  SetStuck(port, false);
  Delist(port);
  std::erase(asked_, &port);
  User& user = users_[port.place.user];
  // One that is still among the users whose turn it is stays until that turn has come.
  if (--user.sessions > 0 || user.listed) return;
  user_of_uid_.erase(user.uid);
  free_users_.push_back(port.place.user);
}

void Rings::Enlist(std::vector<SessionPort*>& list, SessionPort& port) {
  port.place.index = static_cast<uint32_t>(list.size());
  list.push_back(&port);
}

void Rings::Delist(SessionPort& port) {
  std::vector<SessionPort*>& list = port.place.hot ? hot_ : cold_;
  SessionPort* const moved = list.back();
  list[port.place.index] = moved;
  moved->place.index = port.place.index;
  list.pop_back();
}

void Rings::Cool(SessionPort& port) {
  Delist(port);
  port.place.hot = false;
  Enlist(cold_, port);
  Ask(port);
}

void Rings::HasNews(SessionPort& port, Time now) {
  port.place.news_at = now;
  if (port.place.hot) return;
  Delist(port);
  port.place.hot = true;
  Enlist(hot_, port);
  port.SetSleeping(false);
}

SessionPort& Rings::NextCold() {
  if (next_cold_ >= cold_.size()) next_cold_ = 0;
  return *cold_[next_cold_++];
}

bool Rings::HasWork() {
  for (const SessionPort* port : hot_) {
    if (!port->broken && port->TailMoved()) return true;
  }
  for (size_t i = std::min(cold_.size(), kColdPerHasWork); i > 0; --i) {
    const SessionPort& port = NextCold();
    if (port.broken || !port.TailMoved()) continue;
    --next_cold_;  // for the turn to find
    return true;
  }
  return false;
}

void Rings::List(SessionPort& port) {
  SessionPort::RingPlace& place = port.place;
  if (place.listed || port.broken || !port.TailPending()) return;
  User& user = users_[place.user];
  place.listed = true;
  place.previous = user.last;
  place.next = nullptr;
  (user.last == nullptr ? user.first : user.last->place.next) = &port;
  user.last = &port;
  ListUser(place.user);
}

void Rings::Unlist(SessionPort& port) {
  SessionPort::RingPlace& place = port.place;
  if (!place.listed) return;
  User& user = users_[place.user];
  (place.previous == nullptr ? user.first : place.previous->place.next) = place.next;
  (place.next == nullptr ? user.last : place.next->place.previous) = place.previous;
  place.listed = false;
}

void Rings::ListUser(uint32_t id) {
  User& user = users_[id];
  if (user.listed) return;
  user.listed = true;
  user.next = kNone;
  (last_user_ == kNone ? first_user_ : users_[last_user_].next) = id;
  last_user_ = id;
}

SessionPort* Rings::Next() {
  while (first_user_ != kNone) {
    const uint32_t id = first_user_;
    User& user = users_[id];
    first_user_ = user.next;
    if (first_user_ == kNone) last_user_ = kNone;
    user.listed = false;
    SessionPort* const port = user.first;
    if (port != nullptr) {
      Unlist(*port);
      if (user.first != nullptr) ListUser(id);
      return port;
    }
    if (user.sessions == 0) {
      user_of_uid_.erase(user.uid);
      free_users_.push_back(id);
    }
  }
  return nullptr;
}

void Rings::SetStuck(SessionPort& port, bool stuck) {
  if (port.place.stuck == stuck) return;
  port.place.stuck = stuck;
  stuck_ += stuck ? 1 : -1;
}

void Rings::Ask(SessionPort& port) {
  port.SetSleeping(true);
  if (port.place.asked) return;
  port.place.asked = true;
  asked_.push_back(&port);
}

void Rings::AskForBell() {
  for (SessionPort* port : hot_) Ask(*port);
}

bool Rings::FindNews(Time now) {
  bool found = false;
  for (SessionPort* port : asked_) {
    if (port->broken || !port->TailMoved()) continue;
    HasNews(*port, now);
    found = true;
  }
  return found;
}

void Rings::EndSleep() {
  for (SessionPort* port : asked_) port->place.asked = false;
  asked_.clear();
  for (SessionPort* port : hot_) port->SetSleeping(false);
}

}  // namespace concert::daemon
