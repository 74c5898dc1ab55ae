// What the tuning API may ask of the daemon: the seam between daemon/admin and daemon/tuning. All
// of it is thread-safe.
#ifndef CONCERT_DAEMON_TUNING_TUNING_CONTROL_H_
#define CONCERT_DAEMON_TUNING_TUNING_CONTROL_H_

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/tuning/tuner.h"

namespace concert::daemon {

struct TuningRequest {
  int gpu = 0;
  std::vector<TuningItem> items;
  bool collectives = false;  // measure transports between all GPUs instead; `gpu` says nothing
  int verify_rows = 0;       // > 0: measure so many rows of the store again instead
  double budget_s = 0;       // 0: the configured one
  bool force = false;
  bool wait = false;  // for clients' work to end, instead of refusing beside it
};

// One run, while it lasts and afterwards, until the next begins.
struct TuningJob {
  uint64_t id = 0;       // counts from 1; 0: there was none
  uint64_t version = 0;  // grows with every change
  bool running = false;
  int gpu = 0;
  bool idle = false;  // the daemon's own, in idle time
  bool collectives = false;
  double elapsed_s = 0;
  TuningProgress progress;
  std::vector<VerifiedRow> verified;
  bool out_of_time = false;
  absl::Status result;  // once it has ended
};

struct TuningSummary {
  struct Gpu {
    int gpu = 0;
    Environment environment;
    uint32_t rows = 0, stale_rows = 0;
  };
  std::string store_path;
  bool persistent = false;
  std::string warning;
  std::vector<Gpu> gpus;
  Environment collectives;
  uint32_t curves = 0;
  uint64_t hits = 0, misses = 0, stale_hits = 0, invalid_rows = 0;
  TuningJob job;
};

struct ImportResult {
  uint32_t imported = 0;
  uint32_t kept = 0;     // the store had one as good
  uint32_t refused = 0;  // cannot be right
  std::string first_refusal;
};

class TuningControl {
 public:
  virtual ~TuningControl() = default;

  // Begins to tune, or to verify, and returns the job's id. FAILED_PRECONDITION while another runs,
  // beside clients' work (unless request.wait) and while draining; INVALID_ARGUMENT for a GPU that
  // is not there or nothing to do.
  virtual absl::StatusOr<uint64_t> StartJob(const TuningRequest& request) = 0;
  // The latest job, as soon as its id or version differ from these, or after `limit`.
  virtual TuningJob WaitForChange(uint64_t id, uint64_t version,
                                  std::chrono::milliseconds limit) = 0;
  // Ends the job within a sample's time; what it has found stays.
  virtual void CancelJob(uint64_t id) = 0;

  virtual TuningSummary Summary() = 0;
  virtual absl::StatusOr<std::vector<StoredRow>> Rows(int gpu) = 0;
  // Rows of another store, measured on an equal machine. Takes effect at once.
  virtual absl::StatusOr<ImportResult> Import(int gpu, std::span<const StoredRow> rows) = 0;

  // The same of transports between the GPUs. A curve takes the place of one measured before it.
  virtual std::vector<StoredCurve> Curves() = 0;
  virtual absl::StatusOr<ImportResult> ImportCurves(std::span<const StoredCurve> curves) = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_TUNING_CONTROL_H_
