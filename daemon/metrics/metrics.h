// What Prometheus sees of the daemon, collected when it asks: nothing here costs anything before.
// Every figure is one of telemetry's statistics or the daemon's own state; this file only names
// them. Names follow prometheus.io/docs/practices/naming: base units, `_total` on what only grows,
// and samples of one name may be added up over their labels.
//
// The number of samples is bounded, whatever clients do: kMaxSessions below, Stats for users.
// Thread-safe.
#ifndef CONCERT_DAEMON_METRICS_METRICS_H_
#define CONCERT_DAEMON_METRICS_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

#include "daemon/admin/daemon_control.h"
#include "daemon/telemetry/telemetry.h"

namespace concert::daemon {

class Metrics final : public prometheus::Collectable {
 public:
  // Sessions with samples of their own: of the connected ones, those that connected first, so that
  // newer ones never take the place of one that is listed. All of them count for their users.
  static constexpr size_t kMaxSessions = 256;

  // Both must outlive this.
  Metrics(DaemonControl& control, Telemetry& telemetry);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  DaemonControl& control_;
  Telemetry& telemetry_;
  // Fixed, so that it stays the same to the last digit while the two clocks drift apart.
  double start_time_s_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_METRICS_METRICS_H_
