#include "daemon/tuning/lease.h"

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"

namespace concert::daemon {
bool Lease::Turn(Device& device, bool idle) {
  if (in_flight_) {
    disturbed_ |= !idle;
    if (!Ended()) return true;
    in_flight_ = false;
    if (!failure_.ok()) return GiveBack(failure_);
    if (!disturbed_ && Take(sample_)) return GiveBack(absl::OkStatus());
  }
  if (stop_()) return GiveBack(absl::CancelledError("stopped"));
  if (idle) Start(device);
  return in_flight_ || failure_.ok() || GiveBack(failure_);
}

void Lease::Start(Device& device) {
  const uint64_t value = ++*words_.signals;
  sample_ = {};
  began_at_ = 0;
  disturbed_ = false;
  const TimelineWrite end{words_.end_address, value};
  failure_ = Enqueue(device, {words_.begin_address, value}, end);
  // What was enqueued before an error must end before anybody frees its memory.
  if (!failure_.ok() && !device.Signal(0, {&end, 1}).ok()) {
    hung_ = true;
    return;
  }
  in_flight_ = true;
  enqueued_at_ = polled_at_ = NowNs();
  if (LoadWord(words_.begin) >= value) {
    sample_.host_bound = true;
    began_at_ = enqueued_at_;
  }
}

bool Lease::Ended() {
  const int64_t now = NowNs();
  const bool ended = LoadWord(words_.end) >= *words_.signals;
  // Both at once: this thread has not run for a while, and the sample is at most this long.
  if (began_at_ == 0 && LoadWord(words_.begin) >= *words_.signals)
    began_at_ = ended ? polled_at_ : now;
  polled_at_ = now;
  if (ended) {
    sample_.time_ns = now - began_at_;
    return true;
  }
  if (now - enqueued_at_ < kHungNs) return false;
  hung_ = true;
  failure_ = absl::DeadlineExceededError(
      absl::StrCat("a measurement has not ended after ", kHungNs / 1'000'000'000, " s"));
  return true;
}

bool Lease::GiveBack(absl::Status status) {
  const absl::MutexLock lock(&mutex_);
  result_ = std::move(status);
  over_ = true;
  return false;
}

absl::Status Lease::Wait() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&over_));
  return result_;
}

}  // namespace concert::daemon
