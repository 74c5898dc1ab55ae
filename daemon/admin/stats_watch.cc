#include "daemon/admin/stats_watch.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "daemon/admin/to_proto.h"

namespace concert::daemon::admin {

// One stream. gRPC destroys it (OnDone) only after Finish, and Finish is only called when no write
// is under way, so that whoever has set `writing_` may use the watch without the lock.
class StatsWatches::Watch final : public Reactor {
 public:
  Watch(StatsWatches& owner, std::chrono::milliseconds interval)
      : owner_(owner), interval_(interval), due_(Clock::now()) {}

  // A watch that is refused: never in owner.watches_.
  Watch(StatsWatches& owner, const grpc::Status& refusal) : owner_(owner), interval_(0) {
    finished_ = true;
    Finish(refusal);
  }

  // Under owner_.mutex_. True: the caller must call WriteNext after releasing it.
  bool Due(Clock::time_point now) {
    owner_.mutex_.AssertHeld();
    if (finished_ || now < due_) return false;
    due_ = now + interval_;
    if (writing_) ++dropped_;
    return !writing_ && (writing_ = true);
  }
  // Under owner_.mutex_.
  Clock::time_point due() const {
    owner_.mutex_.AssertHeld();
    return due_;
  }

  // REQUIRES: Due() was true.
  void WriteNext(std::shared_ptr<const TelemetrySnapshot> snapshot, uint64_t dropped) {
    response_.Clear();
    response_.set_sequence_number(++sequence_);
    response_.set_dropped_count(dropped);
    if (sent_ == nullptr) {
      FillStats(snapshot->stats, snapshot->taken_at, response_.mutable_stats());
    } else {
      Stats delta = snapshot->stats;
      delta.Subtract(sent_->stats);
      response_.set_interval_seconds(static_cast<double>(snapshot->taken_at - sent_->taken_at) *
                                     1e-9);
      FillStats(delta, snapshot->taken_at, response_.mutable_stats());
    }
    response_.mutable_stats()->set_simulated(owner_.simulated_);
    sent_ = std::move(snapshot);
    StartWrite(&response_);
  }
  // Under owner_.mutex_.
  uint64_t dropped() const {
    owner_.mutex_.AssertHeld();
    return dropped_;
  }

  // Under owner_.mutex_.
  void End(const grpc::Status& status) {
    owner_.mutex_.AssertHeld();
    if (ending_) return;
    ending_ = true;
    status_ = status;
    FinishIfIdle();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(owner_.mutex_);
    writing_ = false;
    if (!ok && !ending_) {
      ending_ = true;
      status_ = grpc::Status(grpc::StatusCode::CANCELLED, "the watcher went away");
    }
    FinishIfIdle();
  }
  void OnCancel() override {
    MutexLock lock(owner_.mutex_);
    End(grpc::Status(grpc::StatusCode::CANCELLED, "the watcher went away"));
  }
  void OnDone() override {
    {
      MutexLock lock(owner_.mutex_);
      if (owner_.watches_.erase(this) > 0) owner_.account_.Release(Resource::kWatches);
      // Notified under the lock: the owner may be destroyed as soon as it is released.
      owner_.changed_.NotifyAll();
    }
    delete this;
  }

 private:
  void FinishIfIdle() CONCERT_REQUIRES(owner_.mutex_) {
    if (!ending_ || writing_ || finished_) return;
    finished_ = true;
    Finish(status_);
  }

  StatsWatches& owner_;
  const std::chrono::milliseconds interval_;
  Clock::time_point due_ CONCERT_GUARDED_BY(owner_.mutex_);
  bool writing_ CONCERT_GUARDED_BY(owner_.mutex_) = false;
  bool ending_ CONCERT_GUARDED_BY(owner_.mutex_) = false;
  bool finished_ CONCERT_GUARDED_BY(owner_.mutex_) = false;
  uint64_t dropped_ CONCERT_GUARDED_BY(owner_.mutex_) = 0;
  grpc::Status status_ CONCERT_GUARDED_BY(owner_.mutex_);
  // Of whoever has set writing_:
  uint64_t sequence_ = 0;
  std::shared_ptr<const TelemetrySnapshot> sent_;
  v1::WatchStatsResponse response_;
};

StatsWatches::StatsWatches(Telemetry& telemetry, Account& account, bool simulated)
    : telemetry_(telemetry),
      account_(account),
      simulated_(simulated),
      thread_(&StatsWatches::Run, this) {}

StatsWatches::~StatsWatches() { Stop(); }

void StatsWatches::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (Watch* watch : watches_) {
      watch->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"));
    }
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

grpc::Status StatsWatches::Admit(uint32_t interval_ms) {
  if (interval_ms < kMinIntervalMs || interval_ms > kMaxIntervalMs) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            "interval_ms is " + std::to_string(interval_ms) + "; it must be between " +
                std::to_string(kMinIntervalMs) + " and " + std::to_string(kMaxIntervalMs) +
                ", or 0 for " + std::to_string(kDefaultIntervalMs)};
  }
  if (stopping_) return {grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"};
  if (!account_.TryCharge(Resource::kWatches)) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            "all " + std::to_string(account_.limit(Resource::kWatches).in_all) +
                " watches are in use; end one or use GetStats"};
  }
  return grpc::Status::OK;
}

StatsWatches::Reactor* StatsWatches::Open(uint32_t interval_ms) {
  if (interval_ms == 0) interval_ms = kDefaultIntervalMs;
  MutexLock lock(mutex_);
  if (const grpc::Status admitted = Admit(interval_ms); !admitted.ok()) {
    return new Watch(*this, admitted);
  }
  Watch* watch = new Watch(*this, std::chrono::milliseconds(interval_ms));
  watches_.insert(watch);
  changed_.NotifyAll();
  return watch;
}

std::vector<StatsWatches::Watch*> StatsWatches::TakeDue(Clock::time_point now,
                                                        Clock::time_point* next) {
  std::vector<Watch*> due;
  *next = now + std::chrono::hours(1);
  for (Watch* watch : watches_) {
    if (watch->Due(now)) due.push_back(watch);
    *next = std::min(*next, watch->due());
  }
  return due;
}

StatsWatches::Due StatsWatches::WaitForDue() {
  const MutexLock lock(mutex_);
  Due due;
  while (!stopping_) {
    Clock::time_point next;
    due.watches = TakeDue(Clock::now(), &next);
    if (!due.watches.empty()) break;
    changed_.WaitUntil(mutex_, next);
  }
  for (const Watch* watch : due.watches) due.dropped.push_back(watch->dropped());
  return due;
}

void StatsWatches::Run() {
  for (Due due = WaitForDue(); !due.watches.empty(); due = WaitForDue()) {
    // Half the shortest interval: two ticks of one watch never share a snapshot.
    const auto snapshot = telemetry_.Snapshot(Time{kMinIntervalMs} * 1'000'000 / 2);
    for (size_t i = 0; i < due.watches.size(); ++i)
      due.watches[i]->WriteNext(snapshot, due.dropped[i]);
  }
}

}  // namespace concert::daemon::admin
