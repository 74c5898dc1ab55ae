// A dispatcher bed in virtual time: the real dispatcher, scheduler and policy, launching on the
// simulator's model of a GPU. What the dispatcher takes of the host is constants.
#ifndef CONCERT_TESTS_BENCH_TIMED_BED_H_
#define CONCERT_TESTS_BENCH_TIMED_BED_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/device/sim/sim_node.h"
#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/null_device.h"

namespace concert::bench {

// Microseconds. The two calls of the driver are kGroupHostUs and kLibraryHostUs of
// policies/auto/split/launch_times.h less what is counted per launch; the others were chosen so
// that the small sets of docs/benchmarks/gemm-h200.json, where the dispatcher is the bottleneck,
// come out as measured there.
struct HostCosts {
  // Of the dispatcher.
  double turn = 0.15;
  double admit_op = 0.25;
  double launch = 3.0;
  double launch_op = 0.25;
  double finish_op = 0.2;
  double group_call = 2.5;
  double library_call = 5.5;
  // Between host and GPU.
  double to_start = 3.5;    // from a launch's call to its start on an idle GPU
  double to_visible = 1.0;  // from the end of an op to when its client sees it
  // Of a client.
  double submit_batch = 0.5;
  double submit_op = 0.12;
};

// A modelled H200. Each launch takes the host's clock on by what it costs.
class TimedGpu final : public NullDevice {
 public:
  explicit TimedGpu(const HostCosts& costs, int sm_count = policies::DeviceModel{}.sm_count);

  double now_us() const { return now_us_; }
  // Takes the clock on, or back to when the host began what came to nothing.
  void SetNow(double us) { now_us_ = us; }
  // Lets happen on the GPU what happens until now.
  void CatchUp();
  // How long it has had nothing to do, as far as it has caught up.
  double idle_us() const { return static_cast<double>(node_->IdleTime(0)) / 1e3; }

  // Called with every launch before it is made.
  using OnLaunch = std::function<void(const daemon::LaunchRequest&)>;
  void set_on_launch(OnLaunch on_launch) { on_launch_ = std::move(on_launch); }
  // Called when something has ended, with the time at which clients see it: before now, where the
  // dispatcher was busy.
  using OnEnd = std::function<void(double us)>;
  void set_on_end(OnEnd on_end) { on_end_ = std::move(on_end); }

  absl::Status Launch(const daemon::LaunchRequest& launch) override;
  absl::Status Signal(daemon::Lane lane, std::span<const daemon::TimelineWrite> writes) override;
  absl::Status Order(daemon::Lane lane, daemon::Lane before) override;

 private:
  const HostCosts& costs_;
  double now_us_ = 0;
  const std::unique_ptr<daemon::sim::SimNode> node_;
  OnLaunch on_launch_;
  OnEnd on_end_;
};

// The dispatcher and its GPU. Deterministic. Not thread-safe.
class TimedBed {
 public:
  // `costs` must outlive this; the rest as DispatcherBed's.
  TimedBed(const HostCosts& costs, const std::string& policy,
           const daemon::DispatcherOptions& options, uint32_t queues,
           int sm_count = policies::DeviceModel{}.sm_count);

  TimedGpu& gpu() { return gpu_; }
  DispatcherBed& bed() { return bed_; }
  double now_us() const { return gpu_.now_us(); }
  // When a client that begins at `us` has written a batch of `ops`.
  double WrittenAtUs(double us, size_t ops) const {
    return us + costs_.submit_batch + costs_.submit_op * static_cast<double>(ops);
  }
  // The dispatcher's next turn; `visit` gets the records it made. Whether there was anything to do.
  bool Turn(const std::function<void(const daemon::OpRecord&)>& visit = {});

 private:
  const HostCosts& costs_;
  TimedGpu gpu_;
  DispatcherBed bed_;
  uint64_t admitted_ = 0;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TIMED_BED_H_
