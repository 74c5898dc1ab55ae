#include "daemon/quota/account.h"

#include <algorithm>

namespace concert::daemon {

Account& Accounts::Of(uint32_t uid) {
  const MutexLock lock(mutex_);
  std::unique_ptr<Account>& account = by_uid_[uid];
  if (account == nullptr) account = std::make_unique<Account>(uid, limits_, node_);
  return *account;
}

void Accounts::Drop(uint32_t uid) {
  const MutexLock lock(mutex_);
  const auto found = by_uid_.find(uid);
  if (found == by_uid_.end()) return;
  const bool unused = std::all_of(
      AllResources().begin(), AllResources().end(),
      [&](const ResourceInfo& info) { return found->second->own().of(info.resource) == 0; });
  if (unused) by_uid_.erase(found);
}

std::vector<Accounts::Row> Accounts::Rows() const {
  const MutexLock lock(mutex_);
  std::vector<Row> rows;
  for (const auto& [uid, account] : by_uid_) {
    Row& row = rows.emplace_back(Row{.uid = uid, .used = {}});
    for (const ResourceInfo& info : AllResources()) {
      row.used[static_cast<size_t>(info.resource)] = account->own().of(info.resource);
    }
  }
  return rows;
}

}  // namespace concert::daemon
