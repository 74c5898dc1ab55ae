// Who holds how much of what. An Account is one user's (uid's), with a counter per resource;
// Accounts owns them all and the node's sums. A charge that would exceed the user's or the node's
// limit fails and changes nothing.
//
// Charging and releasing: any thread, lock-free (two atomic adds). Accounts::Of and Drop: control
// thread. Readers see every counter as of a moment ago.
#ifndef CONCERT_DAEMON_QUOTA_ACCOUNT_H_
#define CONCERT_DAEMON_QUOTA_ACCOUNT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

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

class Account {
 public:
  Account(uint32_t uid, const Limits& limits, Usage& node)
      : uid_(uid), limits_(limits), node_(node) {}
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  // False, and nothing is charged, if the user or the node would hold more than its limit.
  bool TryCharge(Resource resource, uint64_t count = 1) {
    const Limit& limit = limits_[static_cast<size_t>(resource)];
    if (!own_.TryAdd(resource, count, limit.per_user)) return false;
    if (node_.TryAdd(resource, count, limit.in_all)) return true;
    own_.Subtract(resource, count);
    return false;
  }
  void Release(Resource resource, uint64_t count = 1) {
    own_.Subtract(resource, count);
    node_.Subtract(resource, count);
  }

  uint32_t uid() const { return uid_; }
  const Usage& own() const { return own_; }
  const Usage& node() const { return node_; }
  const Limit& limit(Resource resource) const { return limits_[static_cast<size_t>(resource)]; }

 private:
  const uint32_t uid_;
  const Limits& limits_;
  Usage own_;
  Usage& node_;
};

// The accounts of all users with a connection or session. They outlive every thread that charges.
class Accounts {
 public:
  struct Row {
    uint32_t uid;
    std::array<uint64_t, kResourceCount> used;
  };

  explicit Accounts(const Limits& limits) : limits_(limits) {}

  // Makes it if there is none. Valid until Drop. Control thread.
  Account& Of(uint32_t uid);
  // Forgets the user if nothing is charged to it any more. Control thread.
  void Drop(uint32_t uid);

  // Any thread.
  const Limits& limits() const { return limits_; }
  const Usage& node() const { return node_; }
  std::vector<Row> Rows() const;

 private:
  const Limits limits_;
  Usage node_;
  mutable Mutex mutex_;  // for Rows, beside the control thread
  std::map<uint32_t, std::unique_ptr<Account>> by_uid_ CONCERT_GUARDED_BY(mutex_);
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_QUOTA_ACCOUNT_H_
