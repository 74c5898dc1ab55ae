#include "daemon/metrics/metrics_server.h"

#include <prometheus/exposer.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/metrics/metrics.h"

namespace concert::daemon {

struct MetricsServer::Impl {
  std::shared_ptr<Metrics> metrics;
  prometheus::Exposer exposer;  // keeps a weak reference to `metrics`
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() = default;

uint16_t MetricsServer::port() const {
  return static_cast<uint16_t>(impl_->exposer.GetListeningPorts().front());
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(uint16_t port,
                                                                    DaemonControl& control,
                                                                    Telemetry& telemetry) {
  // Names and values of civetweb's options, in turn.
  const std::vector<std::string> options = {"listening_ports",    absl::StrCat("127.0.0.1:", port),
                                            "num_threads",        absl::StrCat(kThreads),
                                            "connection_queue",   absl::StrCat(kQueuedConnections),
                                            "listen_backlog",     absl::StrCat(kQueuedConnections),
                                            "request_timeout_ms", absl::StrCat(kRequestTimeoutMs),
                                            "enable_keep_alive",  "no"};
  try {  // civetweb's C++ side throws where it cannot listen
    auto metrics = std::make_shared<Metrics>(control, telemetry);
    std::unique_ptr<Impl> impl(new Impl{metrics, prometheus::Exposer(options)});
    impl->exposer.RegisterCollectable(metrics);
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
  } catch (const std::exception&) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on 127.0.0.1:", port,
                     "; metrics_port must be a port that is free and that the daemon may take"));
  }
}

}  // namespace concert::daemon
