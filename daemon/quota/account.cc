#include "daemon/quota/account.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace concert::daemon {

absl::Status Account::ChargeAll(std::span<const Charge> charges) {
  for (size_t i = 0; i < charges.size(); ++i) {
    if (TryCharge(charges[i].resource, charges[i].count)) continue;
    const absl::Status refusal = Refusal(charges[i]);
    ReleaseAll(charges.first(i));
    return refusal;
  }
  return absl::OkStatus();
}

void Account::ReleaseAll(std::span<const Charge> charges) {
  for (const Charge& charge : charges) Release(charge.resource, charge.count);
}

absl::Status Account::Refusal(const Charge& charge) const {
  const ResourceInfo& info = InfoOf(charge.resource);
  const Limit& most = limit(charge.resource);
  const uint64_t held = own_.of(charge.resource);
  const bool by_user = charge.count > most.per_user || held > most.per_user - charge.count;
  const std::string_view setting = by_user ? info.setting : info.setting_all;
  return absl::ResourceExhaustedError(absl::StrCat(
      by_user ? absl::StrCat("uid ", uid_, " holds ", held, " of its ", most.per_user)
              : absl::StrCat("all users hold ", node_.of(charge.resource), " of ", most.in_all),
      " ", std::string(info.name), " and ", charge.count, " more are asked for; release some",
      setting.empty() ? "" : absl::StrCat(" or raise ", std::string(setting))));
}

bool Account::unused() const {
  return std::all_of(AllResources().begin(), AllResources().end(),
                     [&](const ResourceInfo& info) { return own_.of(info.resource) == 0; });
}

Account& Accounts::Of(uint32_t uid) {
  const MutexLock lock(mutex_);
  std::unique_ptr<Account>& account = by_uid_[uid];
  if (account == nullptr) account = std::make_unique<Account>(uid, limits_, node_);
  return *account;
}

void Accounts::DropUnused() {
  const MutexLock lock(mutex_);
  std::erase_if(by_uid_, [](const auto& entry) { return entry.second->unused(); });
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
