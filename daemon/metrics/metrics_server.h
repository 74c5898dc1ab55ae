// Serves /metrics to Prometheus over HTTP on the loopback address, by prometheus-cpp and civetweb.
// Every local user may connect. What one can cost is bounded: a fixed number of threads, a short
// queue of connections, and a time limit on each request and each answer.
#ifndef CONCERT_DAEMON_METRICS_METRICS_SERVER_H_
#define CONCERT_DAEMON_METRICS_METRICS_SERVER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/admin/daemon_control.h"
#include "daemon/telemetry/telemetry.h"

namespace concert::daemon {

class MetricsServer {
 public:
  static constexpr int kThreads = 4;
  static constexpr int kQueuedConnections = 16;  // accepted and not read yet
  static constexpr int kRequestTimeoutMs = 1000;

  // `port` 0: any that is free. Both references must outlive the server. UNAVAILABLE if the port
  // cannot be had.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(uint16_t port, DaemonControl& control,
                                                              Telemetry& telemetry);
  // Ends connections; takes as long as a request may.
  ~MetricsServer();

  uint16_t port() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_METRICS_METRICS_SERVER_H_
