// The simulated node: device.h without hardware. Modelled times, real numbers.
#ifndef CONCERT_DAEMON_DEVICE_SIM_SIM_NODE_H_
#define CONCERT_DAEMON_DEVICE_SIM_SIM_NODE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/device/sim/sim_clock.h"
#include "daemon/device/sim/sim_device.h"
#include "daemon/device/sim/sim_executor.h"

namespace concert::daemon::sim {

struct SimOptions {
  int gpus = 2;  // 1 to 16
  Pace pace = Pace::kRealTime;
  uint64_t memory_bytes = uint64_t{8}
                          << 30;  // per GPU; a limit, taken from the machine only when touched
  policies::DeviceModel model{.group_kernel = true};  // of every GPU
  int lane_capacity = 1024;                           // items in flight per lane
  bool compute = true;  // false: times only; no operand is read and nothing but timelines written
};

class SimNode final : public Node {
 public:
  // INVALID_ARGUMENT when an option is out of range.
  static absl::StatusOr<std::unique_ptr<SimNode>> Open(const SimOptions& options);

  int gpu_count() const override { return static_cast<int>(gpus_.size()); }
  SimDevice& gpu(int index) override { return *gpus_[static_cast<size_t>(index)]; }

  // The identity: device addresses are host pointers.
  absl::StatusOr<Address> RegisterHostMemory(void* data, uint64_t bytes) override;
  void UnregisterHostMemory(void* data) override;

  // Any 1 to 16 ranks; ranks may share a GPU.
  absl::Status Connect(std::span<const int> gpus) override;
  std::optional<ModelTimes> ReadModelTimes(int gpu) override {
    return ModelTimes{.now = Now(), .last_signal = executor_.LastSignal(gpu)};
  }
  absl::Status LaunchCollective(std::span<const RankPart> parts,
                                const policies::TransportChoice& choice) override;

  // The model's time. In virtual pace it starts at 0 and moves only by AdvanceTo and RunUntilIdle,
  // which also compute what ends and write its timelines, on the caller's thread. NextEvent() is
  // kNever when idle.
  Time Now() { return executor_.Now(); }
  Time NextEvent() { return executor_.NextEvent(); }
  void AdvanceTo(Time until) { executor_.AdvanceTo(until); }
  void RunUntilIdle();
  // How long the GPU has had no kernel and no collective on its SMs.
  Time IdleTime(int gpu) { return executor_.IdleTime(gpu); }

 private:
  explicit SimNode(const SimOptions& options);

  SimExecutor executor_;
  std::vector<std::unique_ptr<SimDevice>> gpus_;
};

}  // namespace concert::daemon::sim

#endif  // CONCERT_DAEMON_DEVICE_SIM_SIM_NODE_H_
