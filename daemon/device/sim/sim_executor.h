// Runs launches of a simulated node: the engine says when each ends, the executor then computes its
// numbers and writes its timelines, in that order. One engine and one lock for the node: a
// simulator need not scale.
//
// In virtual pace everything happens inside AdvanceTo on the caller's thread. In the other paces a
// pacer thread does it; numbers are computed outside of the lock, so that a launch never waits for
// them. When the CPU is slower than the modelled GPU, ends come late but in order; the model's own
// times do not slip.
#ifndef CONCERT_DAEMON_DEVICE_SIM_SIM_EXECUTOR_H_
#define CONCERT_DAEMON_DEVICE_SIM_SIM_EXECUTOR_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "daemon/device/device.h"
#include "daemon/device/sim/chain_pool.h"
#include "daemon/device/sim/sim_clock.h"
#include "daemon/device/sim/sim_engine.h"
#include "proto/mutex.h"

namespace concert::daemon::sim {

class SimExecutor {
 public:
  SimExecutor(std::span<const policies::DeviceModel> gpus, Pace pace, int lane_capacity,
              bool compute);
  ~SimExecutor();  // what has not ended is dropped

  SimExecutor(const SimExecutor&) = delete;
  SimExecutor& operator=(const SimExecutor&) = delete;

  // As Device's and Node's functions. RESOURCE_EXHAUSTED when a lane is full; then nothing was
  // enqueued.
  absl::Status Launch(int gpu, const LaunchRequest& launch);
  absl::Status Signal(int gpu, Lane lane, std::span<const TimelineWrite> writes);
  absl::Status Order(int gpu, Lane lane, Lane before);
  absl::Status LaunchCollective(std::span<const RankPart> parts,
                                const policies::TransportChoice& choice);

  // The model's time: virtual, or CLOCK_MONOTONIC.
  Time Now();

  // Virtual pace only. NextEvent() is kNever when all work has ended.
  Time NextEvent();
  void AdvanceTo(Time until);

  Time IdleTime(int gpu);
  // By the model; any thread.
  Time LastSignal(int gpu) const {
    return last_signal_[static_cast<size_t>(gpu)].load(std::memory_order_relaxed);
  }

  // Work of this GPU that has not ended never will: no results, no timelines. Any thread.
  // Once faulted() is true, its memory is not touched any more either.
  void Fault(int gpu);
  bool faulted(int gpu) const { return (faulted_.load(std::memory_order_acquire) >> gpu & 1) != 0; }

 private:
  // What a completion's cookie stands for: a type in the highest byte, below it a collective's GPUs
  // as a mask, and the first of a chain in the low half.
  enum class Payload : uint32_t { kLaunch, kCollective, kWrites };
  static uint64_t Cookie(Payload payload, uint32_t first, uint32_t gpus = 0) {
    return static_cast<uint64_t>(payload) << 56 | static_cast<uint64_t>(gpus) << 32 | first;
  }

  Time HostTime() const CONCERT_REQUIRES(mutex_);
  absl::Status CheckRoom(int gpu, Lane lane, int items, size_t ops, size_t writes) const
      CONCERT_REQUIRES(mutex_);
  uint32_t ChainOps(std::span<const Op* const> ops) CONCERT_REQUIRES(mutex_);
  void EnqueueOp(int gpu, Lane lane, Time at, const Op& op, int sm_budget) CONCERT_REQUIRES(mutex_);
  void EnqueuePass(int gpu, const policies::PlannedLaunch& planned, Time at,
                   std::span<const Op* const> runs) CONCERT_REQUIRES(mutex_);
  void EnqueueKernel(int gpu, Lane lane, Time at, std::span<const Op* const> ops, int sm_budget)
      CONCERT_REQUIRES(mutex_);
  void EnqueueWorkList(int gpu, Time at, const LaunchRequest& launch) CONCERT_REQUIRES(mutex_);
  void EnqueueWrites(int gpu, Lane lane, Time at, std::span<const TimelineWrite> writes)
      CONCERT_REQUIRES(mutex_);
  void Wake();

  void Pacer();
  // Moves what ends next to done_, once it does. False: it is time to stop.
  bool AwaitEnds();
  void Execute(const Completion& completion);
  void ReleaseDone() CONCERT_REQUIRES(mutex_);

  const Pace pace_;
  const bool compute_;
  std::vector<policies::DeviceModel> models_;
  std::atomic<uint32_t> dropping_{0};  // GPUs, as a mask, whose work is not computed any more
  std::atomic<uint32_t> faulted_{0};   // those of them that compute nothing any more
  mutable Mutex execute_mutex_;        // held while something is computed
  std::array<std::atomic<Time>, SimEngine::kMaxGpus> last_signal_{};

  Mutex mutex_;
  CondVar wake_;
  SimEngine engine_ CONCERT_GUARDED_BY(mutex_);
  // mutex_ guards the free lists; a chain in flight belongs to its completion.
  ChainPool<Op> ops_;
  ChainPool<TimelineWrite> writes_;
  bool stop_ CONCERT_GUARDED_BY(mutex_) = false;

  std::vector<Completion> done_;  // the advancing thread's
  std::thread pacer_;
};

}  // namespace concert::daemon::sim

#endif  // CONCERT_DAEMON_DEVICE_SIM_SIM_EXECUTOR_H_
