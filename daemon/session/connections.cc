#include "daemon/session/connections.h"

#include <algorithm>
#include <utility>

namespace concert::daemon {
namespace {

constexpr Charge kCharges[] = {{Resource::kConnections, 1}, {Resource::kDescriptors, 1}};

bool AtItsLimit(const Account& account) {
  return std::any_of(std::begin(kCharges), std::end(kCharges), [&](const Charge& charge) {
    return account.own().of(charge.resource) >= account.limit(charge.resource).per_user;
  });
}

}  // namespace

Connection* Connections::Add(UniqueFd socket, int32_t pid, Account& account, int64_t now_ns) {
  while (!account.ChargeAll(kCharges).ok()) {
    if (!(AtItsLimit(account) ? CloseOldestOf(account.uid()) : CloseOneOfMost())) return nullptr;
    ++evicted_;
  }
  const uint64_t key = next_key_++;
  keys_of_[account.uid()].insert(key);
  Connection& connection = all_[key];
  connection = {
      .key = key, .socket = std::move(socket), .account = &account, .pid = pid, .since_ns = now_ns};
  return &connection;
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

bool Connections::CloseOldestOf(uint32_t uid) {
  const auto keys = keys_of_.find(uid);
  if (keys == keys_of_.end()) return false;
  Close(*keys->second.begin());
  return true;
}

bool Connections::CloseOneOfMost() {
  const auto most = std::max_element(
      keys_of_.begin(), keys_of_.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return most != keys_of_.end() && CloseOldestOf(most->first);
}

size_t Connections::CloseOlderThan(int64_t before_ns) {
  size_t closed = 0;
  for (; !all_.empty() && all_.begin()->second.since_ns < before_ns; ++closed) {
    Close(all_.begin()->first);
  }
  return closed;
}

}  // namespace concert::daemon
