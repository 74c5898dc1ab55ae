// The Trace stream. There is one at most, with a thread of its own while it is open: when its time
// is over it takes what telemetry has kept and writes it, so that nobody else waits for the reader.
// One that does not read is cut off.
#ifndef CONCERT_DAEMON_ADMIN_TRACE_STREAM_H_
#define CONCERT_DAEMON_ADMIN_TRACE_STREAM_H_

#include <chrono>
#include <thread>

#include "daemon/quota/account.h"
#include "daemon/telemetry/telemetry.h"
#include "proto/concert/v1/admin.grpc.pb.h"
#include "proto/mutex.h"

namespace concert::daemon::admin {

class TraceStreams {
 public:
  using Reactor = grpc::ServerWriteReactor<v1::TraceResponse>;

  static constexpr uint32_t kDefaultSeconds = 5;
  static constexpr uint32_t kMaxSeconds = 60;
  static constexpr std::chrono::milliseconds kPeriod{100};  // of empty messages, until it is over
  // For the reader, after the trace's time. Half a million ops take some 2 s.
  static constexpr std::chrono::seconds kGrace{20};
  // For a message under way when the daemon stops. A reader takes one within milliseconds.
  static constexpr std::chrono::milliseconds kStopGrace{500};
  static constexpr int kMaxOpsPerMessage = 4096;  // some 500 KB
  static constexpr int kMaxPlansPerMessage = 512;

  // Both must outlive this. A trace is charged to `account` (Resource::kWatches); `simulated` is
  // what messages say of their times.
  TraceStreams(Telemetry& telemetry, Account& account, bool simulated)
      : telemetry_(telemetry), account_(account), simulated_(simulated) {}
  ~TraceStreams() { Stop(); }

  // Begins a trace. gRPC owns the result; one that is refused is finished with its status.
  Reactor* Open(grpc::CallbackServerContext& context, uint32_t seconds);
  // Ends the trace with UNAVAILABLE and refuses others. Idempotent.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  class Stream;

  // Charges for a trace and begins it, or says why there cannot be one.
  grpc::Status Admit(uint32_t seconds) CONCERT_REQUIRES(mutex_);

  Telemetry& telemetry_;
  Account& account_;
  const bool simulated_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ CONCERT_GUARDED_BY(mutex_) = false;
  Clock::time_point stop_by_ CONCERT_GUARDED_BY(mutex_);  // of meaning once stopping_
  bool open_ CONCERT_GUARDED_BY(mutex_) = false;   // a stream exists
  std::thread thread_ CONCERT_GUARDED_BY(mutex_);  // the open stream's, or the last one's
};

}  // namespace concert::daemon::admin

#endif  // CONCERT_DAEMON_ADMIN_TRACE_STREAM_H_
