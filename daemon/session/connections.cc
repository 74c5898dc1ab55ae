#include "daemon/session/connections.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace concert::daemon {

Connection* Connections::Add(UniqueFd socket, int32_t pid, Account& account, int64_t now_ns) {
  while (!account.TryCharge(Resource::kDescriptors)) {
    if (CloseFirstLeaving()) continue;
    const uint64_t oldest = OldestFor(account, Resource::kDescriptors);
    if (oldest == 0) return nullptr;
    Close(oldest);
    ++evicted_;
  }
  while (!account.TryCharge(Resource::kConnections)) {
    const uint64_t oldest = OldestFor(account, Resource::kConnections);
    if (oldest == 0) {
      account.Release(Resource::kDescriptors);
      return nullptr;
    }
    Evict(oldest, now_ns);
  }
  const uint64_t key = next_key_++;
  keys_of_[account.uid()].insert(key);
  Connection& connection = all_[key];
  connection = {
      .key = key, .socket = std::move(socket), .account = &account, .pid = pid, .since_ns = now_ns};
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = key}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.socket.get(), &event) == 0) return &connection;
  Close(key);
  return nullptr;
}

Connection* Connections::Find(uint64_t key) {
  const auto found = all_.find(key);
  return found == all_.end() ? nullptr : &found->second;
}

Connection Connections::Take(uint64_t key) {
  const auto found = all_.find(key);
  CONCERT_CHECK(found != all_.end());
  Connection connection = std::move(found->second);
  all_.erase(found);
  const auto keys = keys_of_.find(connection.account->uid());
  keys->second.erase(key);
  if (keys->second.empty()) keys_of_.erase(keys);
  connection.account->Release(Resource::kConnections);
  return connection;
}

void Connections::Close(uint64_t key) { Take(key).account->Release(Resource::kDescriptors); }

void Connections::Evict(uint64_t key, int64_t now_ns) {
  Connection connection = Take(key);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, connection.socket.get(), nullptr);
  leaving_.push_back({std::move(connection), now_ns + kLeavesAfterNs});
  if (leaving_.size() > kMostLeaving) CloseFirstLeaving();
  ++evicted_;
}

uint64_t Connections::OldestFor(const Account& account, Resource resource) const {
  if (account.own().of(resource) < account.limit(resource).per_user) return OldestOfMost();
  const auto keys = keys_of_.find(account.uid());
  return keys == keys_of_.end() ? 0 : *keys->second.begin();
}

uint64_t Connections::OldestOfMost() const {
  const auto most = std::max_element(
      keys_of_.begin(), keys_of_.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return most == keys_of_.end() ? 0 : *most->second.begin();
}

bool Connections::CloseFirstLeaving() {
  if (leaving_.empty()) return false;
  leaving_.front().connection.account->Release(Resource::kDescriptors);
  leaving_.pop_front();
  return true;
}

void Connections::CloseLeaving(int64_t now_ns) {
  while (!leaving_.empty() && leaving_.front().closes_ns <= now_ns) CloseFirstLeaving();
}

bool Connections::CloseOne() {
  if (CloseFirstLeaving()) return true;
  const uint64_t oldest = OldestOfMost();
  if (oldest != 0) Close(oldest);
  return oldest != 0;
}

size_t Connections::CloseOlderThan(int64_t before_ns) {
  size_t closed = 0;
  for (; !all_.empty() && all_.begin()->second.since_ns < before_ns; ++closed) {
    Close(all_.begin()->first);
  }
  return closed;
}

}  // namespace concert::daemon
