// A GPU in a time of its own, for predicting without one how launches follow each other.
#ifndef CONCERT_TESTS_BENCH_MODEL_GPU_H_
#define CONCERT_TESTS_BENCH_MODEL_GPU_H_

#include <functional>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/group/plan/cost.h"
#include "tests/bench/null_device.h"

namespace concert::bench {

// Microseconds. The two calls of the driver are kGroupHostUs and kLibraryHostUs of
// policies/auto/launch_split.cc less what is counted per launch; the others were chosen so that the
// small sets of docs/benchmarks/gemm-h200.json, where the dispatcher is the bottleneck, come out as
// measured there.
struct RoundCosts {
  // Of the dispatcher.
  double turn = 0.15;
  double admit_op = 0.25;
  double launch = 3.0;
  double launch_op = 0.25;
  double finish_op = 0.2;
  double group_call = 2.5;
  double library_call = 5.5;
  // Between dispatcher and GPU.
  double to_start = 3.5;    // from a launch's call to its start on an idle GPU
  double to_visible = 1.0;  // from the end of an op to its timeline, as host threads see it
  // Of the client.
  double submit_batch = 0.5;
  double submit_op = 0.12;
};

// Virtual time. Within a turn of the dispatcher it goes on by what its work costs.
struct VirtualClock {
  double now_us = 0;
};

// Runs launches in the order of the calls, of which each takes the caller's clock on. A group
// launch runs block by block, as the kernel does: beside the end of the launch before. One that
// copies first, one whose blocks share an SM and library kernels take what the policy predicts,
// behind everything before them.
class ModelGpu : public NullDevice {
 public:
  ModelGpu(const RoundCosts& costs, VirtualClock& clock,
           int sm_count = policies::DeviceModel{}.sm_count)
      : NullDevice(sm_count), costs_(costs), clock_(clock), sm_free_at_us_(sm_count) {}

  // Called with every launch before it is made.
  using OnLaunch = std::function<void(daemon::Lane, const daemon::LaunchRequest&)>;
  void set_on_launch(OnLaunch on_launch) { on_launch_ = std::move(on_launch); }

  absl::Status Launch(daemon::Lane lane, const daemon::LaunchRequest& request) override;

  // Stores the timelines of what the host can see by now. Returns how many.
  int Show();
  // When this GPU last stored the timeline; 0: never.
  double VisibleAtUs(const uint64_t& timeline) const;

  // Since Forget().
  double idle_us() const { return idle_us_; }
  const std::map<int, int>& launches() const { return launches_; }  // by ops
  int library_ops() const { return library_ops_; }
  void Forget();

 private:
  struct Ending {
    double visible_at_us;
    daemon::TimelineWrite write;
  };
  struct BlockItem {
    uint16_t problem;
    double us;
  };

  std::vector<BlockItem> ItemsOf(const daemon::LaunchRequest& request, int block) const;
  void RunBlocks(const daemon::LaunchRequest& request, double called_us);
  void RunWhole(const daemon::LaunchRequest& request, double called_us, double repack_us);
  // The GPU has nothing to do before `us`.
  void CountIdleUntil(double us);
  void End(double at_us, const daemon::TimelineWrite& write) {
    endings_.push_back({at_us + costs_.to_visible, write});
  }

  const RoundCosts& costs_;
  VirtualClock& clock_;
  const kernels::GroupCosts group_costs_;
  std::vector<double> sm_free_at_us_;
  double all_started_at_us_ = 0;  // the blocks of the last launch
  double free_at_us_ = 0;         // the last SM
  double idle_us_ = 0;
  int library_ops_ = 0;
  std::map<int, int> launches_;
  OnLaunch on_launch_;
  std::vector<Ending> endings_;
  std::unordered_map<daemon::Address, double> visible_at_us_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_MODEL_GPU_H_
