// concertd put together: node, telemetry, engine, sessions, admin API and metrics, from a
// configuration to a clean end.
#ifndef CONCERT_DAEMON_DAEMON_H_
#define CONCERT_DAEMON_DAEMON_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/admin/admin_server.h"
#include "daemon/admin/daemon_control.h"
#include "daemon/config/config.h"
#include "daemon/device/device.h"
#include "daemon/metrics/metrics_server.h"
#include "daemon/sched/engine.h"
#include "daemon/service/activity_report.h"
#include "daemon/session/server.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/tuning/tuning.h"

namespace concert::daemon {

class Daemon : public DaemonControl {
 public:
  // Opens the node, binds the sockets and starts every thread.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config);
  // Ends sessions and threads. What still runs is ended with a status first.
  ~Daemon() override;

  // Serves until a drain that was asked for, here or through the admin API, is over. `stop_fd`
  // becomes readable when the process should drain (a signalfd of SIGTERM and SIGINT). False if the
  // drain's time ran out and the GPU may still run what clients were told has ended: then the
  // process should end without freeing their memory.
  bool Serve(int stop_fd);

  // DaemonControl; any thread.
  DaemonInfo Info() const override;
  bool draining() const override { return drain_deadline_ns_.load() != 0; }
  policies::Time Now() const override;
  std::vector<DeviceStatus> Devices() const override;
  Sensors ReadSensors(int gpu) const override { return choice_.node->ReadSensors(gpu); }
  std::vector<SessionInfo> Sessions() const override;
  absl::StatusOr<std::shared_ptr<const CollectiveReport>> Collectives() override {
    return engine_->ReadCollectives();
  }
  Accounts& accounts() override;
  std::vector<PolicyDescription> Policies() const override;
  std::string PolicyName() const override;
  absl::Status SetPolicy(std::string_view name) override;
  absl::Status Drain(uint32_t seconds) override;

 private:
  explicit Daemon(const Config& config);
  absl::Status Open();
  absl::Status OpenDevices();
  absl::Status OpenToOperators();
  TuningOptions MakeTuningOptions();
  ServerOptions MakeServerOptions();
  std::vector<TuningItem> RecentGemms(int gpu);
  void Tick();
  void Report();
  bool DispatchersAlive();

  const Config config_;
  DaemonInfo info_;
  NodeChoice choice_;
  std::unique_ptr<Telemetry> telemetry_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Tuning> tuning_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<MetricsServer> metrics_;  // null: not configured

  std::atomic<int64_t> drain_deadline_ns_{0};  // 0: not draining
  std::atomic<int64_t> drain_limit_s_{0};
  bool gave_up_ = false;  // the drain's time is over and everything was ended
  struct Heartbeat {
    uint64_t turns = 0;
    int64_t seen_at = 0;
  };
  std::vector<Heartbeat> heartbeats_;  // by GPU
  std::string notified_;
  int64_t reported_at_ = 0;
  ActivityReport report_;

  mutable absl::Mutex mutex_;
  std::string policy_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_DAEMON_H_
