// The gRPC server of the admin API: AdminService, health and reflection on a Unix socket of mode
// 0660, owned by group "concert-admin" where there is one.
#ifndef CONCERT_DAEMON_ADMIN_ADMIN_SERVER_H_
#define CONCERT_DAEMON_ADMIN_ADMIN_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/admin/daemon_control.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/tuning/tuning_control.h"

namespace concert::daemon {

class AdminServer {
 public:
  // Serves until destroyed. `control`, `telemetry` and `tuning` must outlive the server; a null
  // `tuning` means that there is no TuningService. ALREADY_EXISTS when
  // another daemon answers on `socket_path`; a stale socket is replaced. Sets the process's umask
  // for a moment: call it before other threads make files.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& socket_path,
                                                            DaemonControl& control,
                                                            Telemetry& telemetry,
                                                            TuningControl* tuning = nullptr);
  ~AdminServer();

  // Ends watches, gives running calls 200 ms, cancels what is left, removes the socket. Idempotent.
  void Stop();

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_ADMIN_ADMIN_SERVER_H_
