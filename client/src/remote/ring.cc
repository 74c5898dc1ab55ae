#include "client/src/remote/ring.h"

#include <unistd.h>

#include <utility>

#include "client/src/entry.h"
#include "client/src/remote/shared_word.h"

namespace concert::client {

Ring::Ring(const Regions& regions, uint32_t index, UniqueFd eventfd, Outcomes* outcomes)
    : layout_(regions.layout().rings[index]),
      control_(regions.submit_control(index)),
      state_(regions.ring_state(index)),
      descriptors_(regions.descriptors(index)),
      completions_(regions.completions(index)),
      outcomes_(outcomes),
      eventfd_(std::move(eventfd)) {}

Ring::Pushed Ring::Push(concert_descriptor* descriptor, uint64_t* collective_sequence) {
  const MutexLock lock(submit_mutex_);
  if (written_ - head_seen_ >= layout_.capacity) {
    // Acquire: the daemon has copied the slots before head, so they may be written again.
    const uint64_t head = LoadAcquire(&state_.head);
    if (written_ - head > layout_.capacity) return Pushed::kBroken;
    head_seen_ = head;
    if (written_ - head == layout_.capacity) {
      Publish();  // what a batch holds back must not keep the ring full
      return Pushed::kFull;
    }
  }
  if (collective_sequence != nullptr)
    descriptor->body.collective.sequence = (*collective_sequence)++;
  descriptor->sequence = written_ + 1;
  descriptors_[written_ & (layout_.capacity - 1)] = *descriptor;
  ++written_;
  if (batches_ == 0) {
    Publish();
  } else {
    deferred_.store(true, std::memory_order_release);
  }
  return Pushed::kYes;
}

void Ring::Publish() {
  if (published_ == written_) return;
  published_ = written_;
  whole_ = false;
  deferred_.store(false, std::memory_order_release);
  // Release: pairs with the daemon's load-acquire of tail before it reads the descriptors.
  StoreRelease(&control_.tail, written_);
  Wake();
}

void Ring::Wake() {
  // Full fence: Dekker pair with the daemon's "store sleeping, full fence, load every tail".
  FullFence();
  if (LoadAcquire(&state_.sleeping) == 0) return;
  const uint64_t one = 1;
  // It can only fail when the counter is at its maximum, and then the dispatcher wakes anyway.
  [[maybe_unused]] const ssize_t written = write(eventfd_.get(), &one, sizeof(one));
}

void Ring::PublishDeferred() {
  const MutexLock lock(submit_mutex_);
  Publish();
}

void Ring::BeginBatch() {
  const MutexLock lock(submit_mutex_);
  if (++batches_ == 1) whole_ = true;
}

bool Ring::EndBatch(AfterBatch* after) {
  const MutexLock lock(submit_mutex_);
  if (batches_ == 0) return false;
  if (--batches_ > 0) return true;
  const BatchView batch = Unpublished();
  const bool single = repeated_ != nullptr && whole_ && !BecomesRun(batch);
  Publish();
  // Behind the doorbell. The slots stay as they are while the lock is held.
  if (!single) return true;
  const auto learn = [&, &repeated = *repeated_] {
    after->wanted = repeated.Learn(batch, &after->released);
    return static_cast<int>(CONCERT_OK);
  };
  // Without memory for it nothing is learnt.
  if (Guard(nullptr, learn) != CONCERT_OK) after->wanted.reset();
  return true;
}

void Ring::RecogniseBatches() {
  const MutexLock lock(submit_mutex_);
  repeated_ = std::make_unique<RepeatedBatches>();
}

BatchView Ring::Unpublished() const {
  return {.slots = descriptors_,
          .mask = layout_.capacity - 1,
          .begin = published_,
          .count = static_cast<uint32_t>(written_ - published_)};
}

// Puts the run in the place of the batch, of which nothing is published: with the queue and the
// waits of its first op and the ticket of its last. Not in company in which its ops are better.
bool Ring::BecomesRun(const BatchView& batch) {
  const RepeatedBatches::Program program = repeated_->Find(batch);
  if (program.handle == 0) return false;
  // Relaxed: a hint, with which nothing else is published.
  const uint32_t company = __atomic_load_n(&state_.company, __ATOMIC_RELAXED);
  if ((program.better_as_ops & company) != 0) {
    if (program.beside_runs()) SayCouldBeRun(batch);
    return false;
  }
  concert_descriptor& run = descriptors_[batch.begin & batch.mask];
  run.ticket = batch[batch.count - 1].ticket;
  run.kind = CONCERT_OP_PROGRAM;
  run.body = {};
  run.body.program.program = program.handle;
  run.body.program.covered = batch.count - 1;
  written_ = batch.begin + 1;
  return true;
}

void Ring::SayCouldBeRun(const BatchView& batch) {
  for (uint32_t i = 0; i < batch.count; ++i)
    descriptors_[(batch.begin + i) & batch.mask].flags = CONCERT_OP_COULD_BE_RUN;
}

void Ring::Drain() {
  if (LoadAcquire(&state_.completion_tail) == drained_.load(std::memory_order_acquire)) return;
  const MutexLock lock(drain_mutex_);
  uint64_t head = drained_.load(std::memory_order_relaxed);
  // Acquire: the entries before completion_tail are written.
  const uint64_t tail = LoadAcquire(&state_.completion_tail);
  if (tail - head > layout_.completion_capacity) return;  // impossible; take nothing from it
  for (; head != tail; ++head) {
    const concert_completion entry = completions_[head & (layout_.completion_capacity - 1)];
    if (entry.sequence == head + 1) outcomes_->Add(entry);
  }
  // Release: the entries have been read, so the daemon may reuse them. `drained_` comes after the
  // outcomes, so that whoever skips draining because of it finds the outcomes there.
  StoreRelease(&control_.completion_head, head);
  drained_.store(head, std::memory_order_release);
}

}  // namespace concert::client
