#include "daemon/telemetry/telemetry.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "daemon/check.h"

namespace concert::daemon {

Telemetry::Telemetry(std::function<Time()> now) : now_(std::move(now)) {}

Telemetry::~Telemetry() { Stop(); }

RecordRing* Telemetry::AddRing(uint8_t gpu, size_t capacity, int sm_count) {
  const MutexLock lock(mutex_);
  stats_.devices[gpu].sm_count = sm_count;  // listed from the start, with zeros
  return rings_.emplace_back(std::make_unique<RecordRing>(gpu, capacity)).get();
}

void Telemetry::Start() { thread_ = std::thread(&Telemetry::Run, this); }

void Telemetry::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Telemetry::BeginSession(uint32_t session, uint32_t uid) {
  const MutexLock lock(mutex_);
  stats_.BeginSession(session, uid);
}

void Telemetry::EndSession(uint32_t session) {
  MutexLock lock(mutex_);
  DrainLocked();  // the session's last records come before its end
  stats_.EndSession(session, now_());
}

std::shared_ptr<const TelemetrySnapshot> Telemetry::Snapshot(Time max_age) {
  MutexLock lock(mutex_);
  const Time now = now_();
  if (latest_ != nullptr && max_age > 0 && now - latest_->taken_at <= max_age) return latest_;
  DrainLocked();
  auto snapshot = std::make_shared<TelemetrySnapshot>();
  snapshot->taken_at = now;
  snapshot->stats = stats_;
  snapshot->plans.assign(plans_.rbegin(), plans_.rend());
  latest_ = std::move(snapshot);
  return latest_;
}

bool Telemetry::BeginTrace() {
  MutexLock lock(mutex_);
  if (trace_ != nullptr) return false;
  DrainLocked();  // what ended before is none of its business
  trace_ = std::make_unique<TraceBuffer>(kMaxTraceChunks);
  dropped_before_trace_ = DroppedLocked();
  return true;
}

bool Telemetry::TraceIsFull() {
  MutexLock lock(mutex_);
  return trace_ == nullptr || trace_->full();
}

Trace Telemetry::EndTrace() {
  MutexLock lock(mutex_);
  CONCERT_CHECK(trace_ != nullptr);
  DrainLocked();
  const std::unique_ptr<TraceBuffer> trace = std::move(trace_);
  return {.records = std::move(*trace), .lost_count = DroppedLocked() - dropped_before_trace_};
}

void Telemetry::Run() {
  auto pause = kBusyPause;
  const MutexLock lock(mutex_);
  while (!stopping_) {
    const size_t drained = DrainLocked();
    pause = drained > 0 ? kBusyPause : std::min(pause * 2, kIdlePause);
    const auto next = std::chrono::steady_clock::now() + pause;
    while (!stopping_ && stop_changed_.WaitUntil(mutex_, next)) {
    }
  }
}

size_t Telemetry::DrainLocked() {
  size_t drained = 0;
  for (const auto& ring : rings_) {
    drained += ring->Drain([&]<typename T>(const T& record) {
      mutex_.AssertHeld();
      stats_.Add(ring->gpu(), record);
      if constexpr (std::is_same_v<T, PlanRecord>) {
        if (plans_.size() == kMaxPlans) plans_.pop_front();
        plans_.push_back({ring->gpu(), record});
      }
      if (trace_ != nullptr) trace_->Add(ring->gpu(), record);
    });
    stats_.devices[ring->gpu()].dropped_record_count = ring->dropped();
  }
  stats_.FoldEnded(now_());
  return drained;
}

uint64_t Telemetry::DroppedLocked() const {
  uint64_t dropped = 0;
  for (const auto& ring : rings_) dropped += ring->dropped();
  return dropped;
}

}  // namespace concert::daemon
