// One GPU's ring, from the client's end: publishes descriptors, drains completions. Thread-safe.
#ifndef CONCERT_CLIENT_SRC_REMOTE_RING_H_
#define CONCERT_CLIENT_SRC_REMOTE_RING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "client/src/remote/outcomes.h"
#include "client/src/remote/regions.h"
#include "client/src/remote/repeated_batches.h"
#include "proto/mutex.h"
#include "proto/ring/ring_abi.h"
#include "proto/unique_fd.h"

namespace concert::client {

class Ring {
 public:
  enum class Pushed { kYes, kFull, kBroken };

  // `regions` and `outcomes` outlive the ring.
  Ring(const Regions& regions, uint32_t index, UniqueFd eventfd, Outcomes* outcomes);

  uint32_t gpu() const { return layout_.gpu; }
  uint32_t capacity() const { return layout_.capacity; }

  // Copies `descriptor` into the next slot, with its sequence, and publishes it unless a batch is
  // open. `collective_sequence`, if not null, is the communicator's op counter: taken and raised
  // here, so that numbers and ring positions of a communicator have one order and a failed push
  // takes none. Never blocks for long: the lock is held while one descriptor is copied. kBroken:
  // the daemon's head is impossible.
  Pushed Push(concert_descriptor* descriptor, uint64_t* collective_sequence);

  // What the end of a batch leaves to do for the daemon's programs.
  struct AfterBatch {
    std::optional<BatchToRegister> wanted;
    uint32_t released = 0;  // a program; 0: none
  };

  void BeginBatch();
  // False when none was open. A batch that stands for a program becomes a run of it.
  bool EndBatch(AfterBatch* after);

  // From now on batches that come again and again are to become programs. Before the first batch.
  void RecogniseBatches();
  // `use` gets the ring's RepeatedBatches, under the lock; is not called if it recognises none.
  template <typename Use>
  void WithBatches(Use use) {
    const MutexLock lock(submit_mutex_);
    if (repeated_ != nullptr) use(*repeated_);
  }

  // Publishes what an open batch has collected. Cheap when there is nothing.
  void Flush() {
    if (deferred_.load(std::memory_order_acquire)) PublishDeferred();
  }

  // Moves the published completions to the outcomes. Cheap when there are none.
  void Drain();

  // Wakes the dispatcher if it sleeps. The caller's store comes before this; see ring_abi.h on
  // `sleeping`.
  void Wake();

 private:
  void PublishDeferred();
  void Publish() CONCERT_REQUIRES(submit_mutex_);
  BatchView Unpublished() const CONCERT_REQUIRES(submit_mutex_);
  bool BecomesRun(const BatchView& batch) CONCERT_REQUIRES(submit_mutex_);
  void SayCouldBeRun(const BatchView& batch) CONCERT_REQUIRES(submit_mutex_);

  const concert_ring_layout layout_;
  concert_submit_control& control_;
  const concert_ring_state& state_;
  concert_descriptor* const descriptors_;
  const concert_completion* const completions_;
  Outcomes* const outcomes_;
  const UniqueFd eventfd_;

  Mutex submit_mutex_;
  // Descriptors in their slots, and those of them that the tail covers.
  uint64_t written_ CONCERT_GUARDED_BY(submit_mutex_) = 0;
  uint64_t published_ CONCERT_GUARDED_BY(submit_mutex_) = 0;
  // A past head: room that is certain without reading the daemon's line.
  uint64_t head_seen_ CONCERT_GUARDED_BY(submit_mutex_) = 0;
  uint32_t batches_ CONCERT_GUARDED_BY(submit_mutex_) = 0;  // open
  bool whole_ CONCERT_GUARDED_BY(submit_mutex_) = false;    // nothing of it is published yet
  std::unique_ptr<RepeatedBatches> repeated_ CONCERT_GUARDED_BY(submit_mutex_);
  std::atomic<bool> deferred_{false};  // written_ != published_

  Mutex drain_mutex_;
  std::atomic<uint64_t> drained_{0};  // completions read; written under drain_mutex_
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_RING_H_
