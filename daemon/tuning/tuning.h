// The daemon's tuning: its store, and one thread that runs what was asked for, and in idle time,
// where that is allowed, what clients have used lately.
#ifndef CONCERT_DAEMON_TUNING_TUNING_H_
#define CONCERT_DAEMON_TUNING_TUNING_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/config/defaults.h"
#include "daemon/sched/engine.h"
#include "daemon/tuning/collective_tuner.h"
#include "daemon/tuning/device_bench.h"
#include "daemon/tuning/tuning_control.h"

namespace concert::daemon {

struct TuningOptions {
  std::string store_path;
  bool idle = defaults::kTuneIdle;
  double budget_s = defaults::kTuneBudgetS;  // of one run
  // What collectives are measured with; its tensor_bytes 0: what suits the node.
  CollectiveBenchOptions collectives;
  // GEMMs that clients ran on a GPU lately; for idle time. Any thread.
  std::function<std::vector<TuningItem>(int gpu)> observed;
  // DeviceBenchOptions::plan_group of a GPU; null: no group launches.
  std::function<decltype(DeviceBenchOptions::plan_group)(int gpu)> plan_group;
};

class Tuning final : public TuningControl {
 public:
  // Opens the store. `engine` must be running from Start() to Stop().
  Tuning(const TuningOptions& options, Engine& engine);
  ~Tuning() override { Stop(); }

  // Gives every GPU what the store has, and starts the thread.
  void Start();
  // Begins no further job; what runs ends within a sample's time. Any thread.
  void BeginStop();
  // And waits for it. Idempotent; one thread.
  void Stop();

  absl::StatusOr<uint64_t> StartJob(const TuningRequest& request) override;
  TuningJob WaitForChange(uint64_t id, uint64_t version, std::chrono::milliseconds limit) override;
  void CancelJob(uint64_t id) override;
  TuningSummary Summary() override;
  absl::StatusOr<std::vector<StoredRow>> Rows(int gpu) override;
  absl::StatusOr<ImportResult> Import(int gpu, std::span<const StoredRow> rows) override;
  std::vector<StoredCurve> Curves() override;
  absl::StatusOr<ImportResult> ImportCurves(std::span<const StoredCurve> curves) override;

 private:
  static constexpr size_t kMaxObserved = 1024;

  // What idle time has seen of one GPU.
  struct Idle {
    std::vector<TuningItem> items;
    bool done = true;  // the last pass over them was not cut short
    bool was_busy = true;
  };

  void Run();
  bool TakeJob() ABSL_LOCKS_EXCLUDED(mutex_);
  void LookForIdleWork();
  void RunJob(uint64_t id, const TuningRequest& request, bool idle);
  absl::Status Perform(const TuningRequest& request, bool idle);
  absl::Status PerformGemms(const TuningRequest& request, bool idle);
  absl::Status PerformCollectives();
  bool Stopped() const;
  // Of one GPU or, for collectives, of all.
  bool Busy(const TuningRequest& request);
  absl::Status WaitUntilQuiet(const TuningRequest& request);
  void Publish(int gpu);
  void PublishAll();
  bool Observe(int gpu, Idle& idle);
  bool busy(int gpu);
  absl::Status CheckGpu(int gpu) const;
  template <typename Change>
  void UpdateJob(Change change) ABSL_LOCKS_EXCLUDED(mutex_);

  const TuningOptions options_;
  Engine& engine_;
  const std::unique_ptr<Store> store_;
  std::vector<Environment> environments_;  // by GPU
  Environment collectives_;
  std::vector<Idle> idle_;  // by GPU; the thread's own

  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> cancelled_{0};  // jobs up to this id are to end
  // Of the job that runs; the thread's own, read by the dispatcher that it measures on.
  std::atomic<uint64_t> current_{0};
  std::atomic<int64_t> started_ns_{0}, deadline_ns_{0};
  absl::Mutex mutex_;
  std::optional<TuningRequest> next_ ABSL_GUARDED_BY(mutex_);
  TuningJob job_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_TUNING_H_
