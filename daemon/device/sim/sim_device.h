// One simulated GPU. See sim_node.h.
#ifndef CONCERT_DAEMON_DEVICE_SIM_SIM_DEVICE_H_
#define CONCERT_DAEMON_DEVICE_SIM_SIM_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/device/sim/sim_executor.h"
#include "daemon/device/sim/sim_memory.h"
#include "proto/mutex.h"

namespace concert::daemon::sim {

class SimDevice final : public Device {
 public:
  // `executor` outlives the device.
  SimDevice(int index, uint64_t memory_bytes, const policies::DeviceModel& model,
            SimExecutor& executor);

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Allocation> Allocate(uint64_t bytes) override {
    if (absl::Status status = healthy(); !status.ok()) return status;
    const MutexLock lock(memory_mutex_);
    return memory_.Allocate(bytes);
  }
  absl::StatusOr<Allocation> Import(const ImportRequest& request) override {
    if (absl::Status status = healthy(); !status.ok()) return status;
    const MutexLock lock(memory_mutex_);
    return memory_.Import(request);
  }
  void Free(const Allocation& allocation) override {
    const MutexLock lock(memory_mutex_);
    memory_.Free(allocation);
  }
  absl::StatusOr<uint64_t> Digest(Address data, uint64_t bytes) override;
  absl::StatusOr<bool> Same(Address a, Address b, uint64_t bytes) override;
  absl::Status Copy(Address to, Address from, uint64_t bytes) override;

  // As if there were a step kernel, which runs what PlanStep finds stages for.
  absl::Status Prepare(kernels::Program& program) override;
  using Device::Prepare;

  absl::Status Launch(const LaunchRequest& launch) override;
  absl::Status Signal(Lane lane, std::span<const TimelineWrite> writes) override;
  absl::Status Order(Lane lane, Lane before) override;
  // One, of the shape that simulated kernels have.
  std::vector<policies::Variant> Variants(const policies::Problem& problem, int sm_budget) override;
  // Simulated kernels are all alike: there is nothing to choose.
  void UseTuned(std::shared_ptr<const policies::TunedTable>) override {}
  absl::Status healthy() const override;

  uint64_t used_bytes() const {
    const MutexLock lock(memory_mutex_);
    return memory_.used_bytes();
  }

  void TakeStalledRuns(absl::FunctionRef<void(const kernels::StalledRun&)> tell) override;

  // Fault injection, from any thread. StallNextRun: the next run of a program that is launched is
  // told of as stalled; it ends when it would have. FailLaunches: the next `count` launches return
  // INTERNAL and start nothing; the GPU stays healthy. Fault: as an illegal address does on a real
  // GPU: what has not ended never will, healthy() says so and every later call fails.
  void FailLaunches(int count) { launches_to_fail_.store(count, std::memory_order_relaxed); }
  void Fault() { executor_.Fault(info_.gpu); }
  void StallNextRun() { stall_next_run_.store(true, std::memory_order_relaxed); }

  // Consumes one injected failure, if any is left, and returns it.
  absl::Status CheckLaunchable();

 private:
  DeviceInfo info_;
  mutable Mutex memory_mutex_;
  SimMemory memory_ CONCERT_GUARDED_BY(memory_mutex_);
  SimExecutor& executor_;
  std::atomic<int> launches_to_fail_{0};
  std::atomic<bool> stall_next_run_{false};
  std::optional<kernels::StalledRun> stalled_;  // the dispatcher's
};

}  // namespace concert::daemon::sim

#endif  // CONCERT_DAEMON_DEVICE_SIM_SIM_DEVICE_H_
