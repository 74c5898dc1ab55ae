// Who holds how much of what. An Account is one user's (uid's), with a counter per resource;
// Accounts owns them all and the node's sums. A charge that would exceed the user's or the node's
// limit fails and changes nothing.
//
// Charging and releasing: any thread, lock-free (two atomic adds). Readers see every counter as of
// a moment ago.
#ifndef CONCERT_DAEMON_QUOTA_ACCOUNT_H_
#define CONCERT_DAEMON_QUOTA_ACCOUNT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "daemon/check.h"
#include "daemon/quota/resource.h"
#include "proto/mutex.h"

namespace concert::daemon {

// Counters of one user, or of the node. Relaxed: nothing is published through them.
class Usage {
 public:
  uint64_t of(Resource resource) const {
    return used_[static_cast<size_t>(resource)].load(std::memory_order_relaxed);
  }
  bool TryAdd(Resource resource, uint64_t count, uint64_t limit) {
    std::atomic<uint64_t>& used = used_[static_cast<size_t>(resource)];
    const uint64_t before = used.fetch_add(count, std::memory_order_relaxed);
    if (count <= limit && before <= limit - count) return true;
    used.fetch_sub(count, std::memory_order_relaxed);
    return false;
  }
  void Subtract(Resource resource, uint64_t count) {
    const uint64_t before =
        used_[static_cast<size_t>(resource)].fetch_sub(count, std::memory_order_relaxed);
    CONCERT_CHECK(before >= count);
  }

 private:
  std::array<std::atomic<uint64_t>, kResourceCount> used_{};
};

struct Charge {
  Resource resource;
  uint64_t count = 1;
};

class Account {
 public:
  Account(uint32_t uid, const Limits& limits, Usage& node)
      : uid_(uid), limits_(limits), node_(node) {}
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  // False, and nothing is charged, if the user or the node would hold more than its limit. Of what
  // all users may hold together, the last part (Limit::kept) is for those who hold little, so that
  // some who take all they get lock nobody else out.
  bool TryCharge(Resource resource, uint64_t count = 1) {
    const Limit& limit = limits_[resource];
    if (!own_.TryAdd(resource, count, limit.per_user)) return false;
    const uint64_t kept = own_.of(resource) <= limit.little() ? 0 : limit.kept();
    if (node_.TryAdd(resource, count, limit.in_all - kept)) return true;
    own_.Subtract(resource, count);
    return false;
  }
  void Release(Resource resource, uint64_t count = 1) {
    node_.Subtract(resource, count);
    own_.Subtract(resource, count);  // last: an account that nothing is charged to may be dropped
  }

  // All of them or, with a RESOURCE_EXHAUSTED that says what is held and what to do, none.
  absl::Status ChargeAll(std::span<const Charge> charges);
  void ReleaseAll(std::span<const Charge> charges);

  uint32_t uid() const { return uid_; }
  const Usage& own() const { return own_; }
  const Usage& node() const { return node_; }
  const Limit& limit(Resource resource) const { return limits_[resource]; }
  // Whether nothing is charged to it.
  bool unused() const;

 private:
  absl::Status Refusal(const Charge& charge) const;

  const uint32_t uid_;
  const Limits& limits_;
  Usage own_;
  Usage& node_;
};

// The accounts of all users who hold something, and one for the operators, whom the admin API does
// not tell apart. Outlives every thread that charges.
class Accounts {
 public:
  struct Row {
    uint32_t uid;
    std::array<uint64_t, kResourceCount> used;
    uint64_t of(Resource resource) const { return used[static_cast<size_t>(resource)]; }
  };

  explicit Accounts(const Limits& limits) : limits_(limits), operators_(kNoUid, limits_, node_) {}

  // Makes it if there is none. Stays as long as something is charged to it, and until the next
  // DropUnused. Control thread.
  Account& Of(uint32_t uid);
  // Forgets users to whom nothing is charged. Control thread, which must have no reference left to
  // an account that it has charged nothing to.
  void DropUnused();

  // Any thread.
  Account& operators() { return operators_; }
  const Limits& limits() const { return limits_; }
  const Usage& node() const { return node_; }
  std::vector<Row> Rows() const;  // of users, by uid

 private:
  static constexpr uint32_t kNoUid = ~uint32_t{0};  // the kernel's "no such user"

  const Limits limits_;
  Usage node_;
  Account operators_;
  mutable Mutex mutex_;  // for Rows, beside the control thread
  std::map<uint32_t, std::unique_ptr<Account>> by_uid_ CONCERT_GUARDED_BY(mutex_);
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_QUOTA_ACCOUNT_H_
