// The open WatchStats streams. One thread ticks for all of them; a watch whose last message is
// still on its way when its next is due skips it and counts it as dropped, so that a slow reader
// gets the latest and never a backlog.
#ifndef CONCERT_DAEMON_ADMIN_STATS_WATCH_H_
#define CONCERT_DAEMON_ADMIN_STATS_WATCH_H_

#include <chrono>
#include <set>
#include <thread>

#include "daemon/quota/account.h"
#include "daemon/telemetry/telemetry.h"
#include "proto/concert/v1/admin.grpc.pb.h"
#include "proto/mutex.h"

namespace concert::daemon::admin {

class StatsWatches {
 public:
  using Reactor = grpc::ServerWriteReactor<v1::WatchStatsResponse>;

  static constexpr uint32_t kMinIntervalMs = 50;
  static constexpr uint32_t kMaxIntervalMs = 3'600'000;
  static constexpr uint32_t kDefaultIntervalMs = 1000;

  // Both must outlive this. Each watch is charged to `account` (Resource::kWatches); `simulated` is
  // what messages say of their numbers.
  StatsWatches(Telemetry& telemetry, Account& account, bool simulated);
  ~StatsWatches();

  // Begins a watch. gRPC owns the result; a refused watch is finished with its status.
  Reactor* Open(uint32_t interval_ms);
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  class Watch;

  void Run();
  // The watches to write to now, marked as writing, and when the next is due.
  std::vector<Watch*> TakeDue(Clock::time_point now, Clock::time_point* next)
      CONCERT_REQUIRES(mutex_);
  // Sleeps until watches are due. Empty: until Stop.
  struct Due {
    std::vector<Watch*> watches;
    std::vector<uint64_t> dropped;  // by each of them so far
  };
  Due WaitForDue();
  // Charges for a watch, or says why there cannot be one.
  grpc::Status Admit(uint32_t interval_ms) CONCERT_REQUIRES(mutex_);

  Telemetry& telemetry_;
  Account& account_;
  const bool simulated_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ CONCERT_GUARDED_BY(mutex_) = false;
  std::set<Watch*> watches_ CONCERT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace concert::daemon::admin

#endif  // CONCERT_DAEMON_ADMIN_STATS_WATCH_H_
