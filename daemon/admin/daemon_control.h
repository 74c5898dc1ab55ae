// What the admin API may ask of the daemon and tell it to do: the seam between daemon/admin and the
// rest. All of it is thread-safe, is called from gRPC threads and returns within milliseconds.
#ifndef CONCERT_DAEMON_ADMIN_DAEMON_CONTROL_H_
#define CONCERT_DAEMON_ADMIN_DAEMON_CONTROL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/sched/collective_report.h"
#include "kernels/program/program.h"

namespace concert::daemon {

// Fixed for the daemon's life.
struct DaemonInfo {
  std::string version;
  uint32_t pid = 0;
  policies::Time started_at = 0;
  std::string backend;         // "sim" or "cuda"
  std::string backend_reason;  // NodeChoice::why
  std::string client_socket;
  // Why it does less than it should, from its start on; then gRPC health says NOT_SERVING.
  std::string degraded = {};

  // Times are a model's, and results are computed on the CPU.
  bool simulated() const { return backend == "sim"; }
};

struct SessionInfo {
  uint32_t id = 0;
  uint32_t uid = 0, pid = 0;  // from SO_PEERCRED
  std::string client_name;    // as the client wrote it: may hold any bytes
  policies::Time connected_at = 0;
  uint32_t queues = 0;
  uint32_t buffers = 0;
  uint64_t registered_bytes = 0;
  uint64_t sealed_bytes = 0, shared_bytes = 0;  // as SessionSummary's
  std::vector<uint32_t> gpus;                   // it has a ring for
  std::vector<kernels::ProgramSummary> programs;
};

struct DeviceStatus {
  DeviceInfo info;
  absl::Status health;
  uint32_t plans_in_flight = 0;
  uint32_t ready_ops = 0;
  uint32_t queued_ops = 0;  // admitted and not yet ready
  // What sealed buffers take, equal ones of a user once, and what they would take more if each had
  // its own memory.
  uint64_t sealed_bytes = 0, sealed_saved_bytes = 0;
};

struct PolicyDescription {
  std::string name;
  std::string summary;  // one line
};

class DaemonControl {
 public:
  virtual ~DaemonControl() = default;

  virtual DaemonInfo Info() const = 0;
  virtual bool draining() const = 0;
  // The clock of all times here and in records.
  virtual policies::Time Now() const = 0;

  virtual std::vector<DeviceStatus> Devices() const = 0;  // by GPU index
  // Asks the GPU's driver: while that is busy it may take longer.
  virtual Sensors ReadSensors(int gpu) const = 0;
  virtual std::vector<SessionInfo> Sessions() const = 0;  // by id
  // What waits for ranks and what runs; asks the issuer of collectives, which may take 2 s if it
  // hangs.
  virtual absl::StatusOr<std::shared_ptr<const CollectiveReport>> Collectives() = 0;
  // Who holds how much, of what limit. The API's own streams are charged to operators().
  virtual Accounts& accounts() = 0;

  virtual std::vector<PolicyDescription> Policies() const = 0;
  virtual std::string PolicyName() const = 0;
  // From the next decision of every GPU on. NOT_FOUND, listing all names, for an unknown one.
  virtual absl::Status SetPolicy(std::string_view name) = 0;

  // Begins to drain and returns; 0 seconds means the configured time. FAILED_PRECONDITION when it
  // drains already.
  virtual absl::Status Drain(uint32_t seconds) = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_ADMIN_DAEMON_CONTROL_H_
