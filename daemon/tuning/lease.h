// A GPU lent by its dispatcher for a row of timed samples: the waiting and the clock. What a sample
// is, derived classes say.
#ifndef CONCERT_DAEMON_TUNING_LEASE_H_
#define CONCERT_DAEMON_TUNING_LEASE_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "daemon/sched/lease_holder.h"

namespace concert::daemon {

// Of memory with timeline words: a multiple of any page size here; every word has a line of its
// own.
inline constexpr uint64_t kPageBytes = 64 << 10;
inline constexpr uint64_t kLineBytes = 64;
// Samples take milliseconds; whatever takes this long does not end.
inline constexpr int64_t kHungNs = 10'000'000'000;

// Acquire: pairs with the device's write after the work before it.
inline uint64_t LoadWord(uint64_t* word) {
  return std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire);
}

class Lease : public LeaseHolder {
 public:
  // Two timeline words in registered host memory, and the last value written to either.
  struct Words {
    uint64_t* begin = nullptr;
    uint64_t* end = nullptr;
    Address begin_address = 0, end_address = 0;
    uint64_t* signals = nullptr;
  };

  // `stop` is asked before every sample.
  Lease(const Words& words, const std::function<bool()>& stop) : words_(words), stop_(stop) {}

  // The dispatcher's thread may be on its way out of GiveBack.
  ~Lease() override { const absl::MutexLock lock(&mutex_); }

  bool Turn(Device& device, bool idle) override;

  // Waits until the dispatcher has the GPU back. CANCELLED: stopped. The GPU runs nothing of the
  // lease any more, unless hung().
  absl::Status Wait();
  bool hung() const { return hung_; }

 protected:
  // Enqueues one sample: it signals `begin` where its time starts and `end` where it ends. After an
  // error the sample does not count, and the lease ends with that error.
  virtual absl::Status Enqueue(Device& device, const TimelineWrite& begin,
                               const TimelineWrite& end) = 0;
  struct Sample {
    int64_t time_ns = 0;      // from begin to end
    bool host_bound = false;  // it began before everything was enqueued
  };
  // True: that was the last one. Not called for samples that clients' work disturbed.
  virtual bool Take(const Sample& sample) = 0;

 private:
  void Start(Device& device);
  bool Ended();
  bool GiveBack(absl::Status status);

  const Words words_;
  const std::function<bool()>& stop_;
  // Of the dispatcher's thread until it gives the GPU back.
  bool in_flight_ = false, disturbed_ = false, hung_ = false;
  int64_t enqueued_at_ = 0, polled_at_ = 0, began_at_ = 0;
  Sample sample_;
  absl::Status failure_;

  absl::Mutex mutex_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_LEASE_H_
