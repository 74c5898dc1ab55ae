// A session's charge to its user's Account, counted by the one thread that makes it and carried
// over in blocks, so that the hot path touches the shared counters rarely.
#ifndef CONCERT_DAEMON_SCHED_BLOCK_CHARGE_H_
#define CONCERT_DAEMON_SCHED_BLOCK_CHARGE_H_

#include <algorithm>
#include <cstdint>

#include "daemon/quota/account.h"

namespace concert::daemon {

// The account shows up to two blocks more than are in use. Not thread-safe.
class BlockCharge {
 public:
  static constexpr uint64_t kBlock = 64;

  // `account` outlives this; null: nothing is charged, and everything granted.
  BlockCharge(Account* account, Resource resource) : account_(account), resource_(resource) {}
  ~BlockCharge() {
    if (account_ != nullptr && charged_ > 0) account_->Release(resource_, charged_);
  }
  BlockCharge(const BlockCharge&) = delete;
  BlockCharge& operator=(const BlockCharge&) = delete;

  // False, and nothing is taken, if the quota does not allow it.
  bool Take(uint64_t count) {
    if (account_ == nullptr || used_ + count <= charged_) {
      used_ += count;
      return true;
    }
    const uint64_t missing = used_ + count - charged_;
    if (account_->TryCharge(resource_, std::max(missing, kBlock))) {
      charged_ += std::max(missing, kBlock);
    } else if (account_->TryCharge(resource_, missing)) {
      charged_ += missing;
    } else {
      return false;
    }
    used_ += count;
    return true;
  }
  // REQUIRES: `count` are taken.
  void Give(uint64_t count) {
    used_ -= count;
    if (account_ == nullptr || charged_ - used_ <= 2 * kBlock) return;
    const uint64_t spare = charged_ - used_ - kBlock;
    account_->Release(resource_, spare);
    charged_ -= spare;
  }
  uint64_t used() const { return used_; }

 private:
  Account* const account_;
  const Resource resource_;
  uint64_t used_ = 0, charged_ = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_BLOCK_CHARGE_H_
