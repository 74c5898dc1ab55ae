// Turns the dispatchers' records into statistics and a list of recent plans. One thread empties all
// rings every few milliseconds while there is traffic and rests up to 50 ms at a time when there is
// none.
//
// Threads: everything here may be called from any thread but a dispatcher, whose only contact is
// its ring.
#ifndef CONCERT_DAEMON_TELEMETRY_TELEMETRY_H_
#define CONCERT_DAEMON_TELEMETRY_TELEMETRY_H_

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/telemetry/record_ring.h"
#include "daemon/telemetry/stats.h"
#include "daemon/telemetry/trace_buffer.h"
#include "proto/mutex.h"

namespace concert::daemon {

struct RecentPlan {
  uint8_t gpu;
  PlanRecord record;
};

// What ended while it lasted.
struct Trace {
  TraceBuffer records;      // ops of a GPU in the order of their ends; plans too
  uint64_t lost_count = 0;  // records that the dispatchers' rings had no room for
};

// Immutable once published.
struct TelemetrySnapshot {
  Time taken_at = 0;
  Stats stats;
  std::vector<RecentPlan> plans;  // newest first, at most Telemetry::kMaxPlans
};

class Telemetry {
 public:
  static constexpr size_t kMaxPlans = 256;
  static constexpr std::chrono::milliseconds kBusyPause{5};
  static constexpr std::chrono::milliseconds kIdlePause{50};
  // Snapshots younger than this are shared between readers. Making one took a median of 0.07 ms
  // with 100 sessions and 2.0 ms with Stats::kMaxSessions (release build, busy 2-core x86 virtual
  // machine).
  static constexpr Time kDefaultMaxAge = 20'000'000;  // 20 ms

  // What a trace keeps, 128 MiB: half a million ops, each of which has a plan of its own.
  static constexpr size_t kMaxTraceChunks = 64;

  // `now` is the clock of the records.
  explicit Telemetry(std::function<Time()> now);
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  // The ring for the dispatcher of `gpu`, which has `sm_count` SMs; lives as long as this object.
  // Call before Start and before anyone else has this object.
  RecordRing* AddRing(uint8_t gpu, size_t capacity = RecordRing::kDefaultCapacity,
                      int sm_count = policies::DeviceModel().sm_count);

  // Without it, records are only taken when somebody asks for a snapshot.
  void Start();
  // Stops the thread; what is in the rings stays readable through Snapshot. Idempotent.
  void Stop();

  // The session is there; before its ops are. What is recorded for sessions that are not listed
  // counts in Stats::departed.
  void BeginSession(uint32_t session, uint32_t uid);
  // The session has disconnected; its numbers are kept for a while.
  void EndSession(uint32_t session);

  // Everything recorded up to `max_age` ns ago or later. Never null.
  std::shared_ptr<const TelemetrySnapshot> Snapshot(Time max_age = kDefaultMaxAge);

  // From here on every record is kept, until there is no more room. False if there is a trace
  // already: one at a time, so that memory is bounded. Without one nothing is kept.
  bool BeginTrace();
  // Whether more would not be kept: there is no room, or no trace.
  bool TraceIsFull();
  // REQUIRES: a trace.
  Trace EndTrace();

 private:
  void Run();
  // The mutex also makes its holder the rings' one consumer.
  size_t DrainLocked() CONCERT_REQUIRES(mutex_);
  uint64_t DroppedLocked() const CONCERT_REQUIRES(mutex_);

  const std::function<Time()> now_;
  std::vector<std::unique_ptr<RecordRing>> rings_;  // fixed after Start

  Mutex mutex_;
  CondVar stop_changed_;
  bool stopping_ CONCERT_GUARDED_BY(mutex_) = false;
  Stats stats_ CONCERT_GUARDED_BY(mutex_);
  std::deque<RecentPlan> plans_ CONCERT_GUARDED_BY(mutex_);  // oldest first
  std::shared_ptr<const TelemetrySnapshot> latest_ CONCERT_GUARDED_BY(mutex_);

  std::unique_ptr<TraceBuffer> trace_ CONCERT_GUARDED_BY(mutex_);  // null: there is none
  uint64_t dropped_before_trace_ CONCERT_GUARDED_BY(mutex_) = 0;   // by the rings

  std::thread thread_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TELEMETRY_TELEMETRY_H_
