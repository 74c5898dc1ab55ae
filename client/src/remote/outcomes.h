// Which ops failed, and why: the last kKept failures of a session. An op without a record
// succeeded.
#ifndef CONCERT_CLIENT_SRC_REMOTE_OUTCOMES_H_
#define CONCERT_CLIENT_SRC_REMOTE_OUTCOMES_H_

#include <array>
#include <atomic>

#include "client/src/remote/names.h"
#include "concert/concert.h"
#include "proto/mutex.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

class Outcomes {
 public:
  static constexpr size_t kKept = 1024;

  // `names` outlives this.
  explicit Outcomes(const Names& names) : names_(names) {}

  // Keeps a copy, in place of the oldest record when full.
  void Add(const concert_completion& failure);

  // The outcome of an op whose timeline has reached its ticket and whose ring's completions are
  // drained. Lock-free for queues that never had a failure.
  int Of(uint32_t queue, uint64_t ticket, concert_error* error) const;

 private:
  const Names& names_;
  std::array<std::atomic<bool>, CONCERT_MAX_QUEUES> any_{};  // the queue had a failure
  mutable Mutex mutex_;
  std::array<concert_completion, kKept> records_ CONCERT_GUARDED_BY(mutex_) = {};
  uint64_t added_ CONCERT_GUARDED_BY(mutex_) = 0;
  // Highest ticket of the queue whose record was replaced: older tickets without a record may have
  // failed.
  std::array<uint64_t, CONCERT_MAX_QUEUES> forgotten_ CONCERT_GUARDED_BY(mutex_) = {};
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_OUTCOMES_H_
