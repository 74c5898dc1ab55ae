#include "client/src/remote/outcomes.h"

#include <algorithm>

#include "client/src/failure.h"

namespace concert::client {

void Outcomes::Add(const concert_completion& failure) {
  if (failure.queue >= CONCERT_MAX_QUEUES) return;  // not a queue we could ever ask for
  const MutexLock lock(mutex_);
  concert_completion& record = records_[added_ % kKept];
  if (added_ >= kKept) {
    uint64_t& forgotten = forgotten_[record.queue];
    forgotten = std::max(forgotten, record.ticket);
  }
  record = failure;
  ++added_;
  any_[failure.queue].store(true, std::memory_order_release);
}

int Outcomes::Of(uint32_t queue, uint64_t ticket, concert_error* error) const {
  if (!any_[queue].load(std::memory_order_acquire)) return CONCERT_OK;
  const MutexLock lock(mutex_);
  const auto end = records_.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(added_, kKept));
  const auto found = std::find_if(records_.begin(), end, [&](const concert_completion& record) {
    return record.queue == queue && ticket <= record.ticket &&
           record.ticket - ticket <= record.covered;
  });
  if (found == end) {
    if (ticket > forgotten_[queue]) return CONCERT_OK;
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "the outcome of op %llu is no longer known: more than %zu ops failed since; "
                "ask for outcomes sooner",
                static_cast<unsigned long long>(ticket), kKept);
  }
  char sentence[sizeof(concert_error::message)];
  names_.Render(found->message, found->args, sentence, sizeof(sentence));
  return Fail(error, found->status, "%s", sentence);
}

}  // namespace concert::client
