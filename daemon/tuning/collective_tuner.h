// Measures every transport between the GPUs of the node, fits its curves and writes them to the
// store.
#ifndef CONCERT_DAEMON_TUNING_COLLECTIVE_TUNER_H_
#define CONCERT_DAEMON_TUNING_COLLECTIVE_TUNER_H_

#include <functional>
#include <vector>

#include "daemon/tuning/collective_bench.h"
#include "daemon/tuning/store.h"
#include "daemon/tuning/tuner.h"

namespace concert::daemon {

// Between two GPUs, then between all if there are more: all five kinds, from 4 KiB to the bench's
// largest tensor, by every transport on each number of SMs that is chosen from (kPeerSms), in
// turns, so that what drifts drifts for all; the median of each is a point. Then the large ones
// beside GEMMs.
class CollectiveTuner {
 public:
  // All outlive the tuner. `environment`: of the node's collectives.
  CollectiveTuner(CollectiveBench& bench, Store& store, const Environment& environment,
                  const policies::DeviceModel& device, int gpu_count, int64_t measured_at_s)
      : bench_(bench),
        store_(store),
        environment_(environment),
        device_(device),
        gpu_count_(gpu_count),
        measured_at_s_(measured_at_s) {}

  // `on_progress` is called whenever something has changed. OK: everything is done. CANCELLED: the
  // bench was told to stop; curves that were finished are in the store. Else: the device's failure.
  absl::Status Run(const std::function<void(const TuningProgress&)>& on_progress);

 private:
  struct Measured {
    CollectiveCase test;
    CurvePoint point;
  };

  std::vector<CollectiveCase> CasesOf(int ranks);
  absl::Status RunRanks(int ranks);
  absl::StatusOr<std::vector<Measured>> MeasureAlone(int ranks);
  absl::StatusOr<std::vector<BesidePoint>> MeasureBeside(std::span<const Measured> measured,
                                                         policies::Transport transport);
  absl::Status Keep(std::span<const Measured> measured, policies::Transport transport, int ranks);
  void Report(std::string current);

  CollectiveBench& bench_;
  Store& store_;
  const Environment environment_;
  const policies::DeviceModel device_;
  const int gpu_count_;
  const int64_t measured_at_s_;
  TuningProgress progress_;
  std::function<void(const TuningProgress&)> on_progress_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_COLLECTIVE_TUNER_H_
