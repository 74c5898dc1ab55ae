// Measures on a GPU of this daemon, through the same Device::Launch as clients' work.
//
// A sample: on lane 0 copies that keep the GPU busy while everything else is enqueued, a timeline
// write, the co-run set again and again on its lanes, a second timeline write behind all of them.
// The host's clock between seeing the two writes is the time of all repetitions: 8 launches or more
// and about 0.6 ms, so that polling (below 1 us) is no error. A sample whose first write came
// before the last launch was enqueued has measured the host; then the next one gets more copies.
// Weights lie in rotating places of a memory larger than any L2.
#ifndef CONCERT_DAEMON_TUNING_DEVICE_BENCH_H_
#define CONCERT_DAEMON_TUNING_DEVICE_BENCH_H_

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/sched/messages.h"
#include "daemon/tuning/lease.h"
#include "daemon/tuning/measure.h"

namespace concert::daemon {

struct DeviceBenchOptions {
  uint64_t memory_bytes = 0;  // of the GPU's, while the bench exists
  uint64_t plug_bytes = 0;    // of one copy that keeps the GPU busy
  // True: measure nothing any more. Called by the dispatcher's thread too.
  std::function<bool()> stop;
  // Null, or a work list for group launches of these problems on `blocks` SMs (0: all) that follow
  // one another, valid until the next call. Without it groups are not measured.
  std::function<const kernels::GroupWorkList*(std::span<const policies::Problem> problems,
                                              int blocks)>
      plan_group;
};

// What suits a device: 1 GiB or an eighth of its memory; the simulator computes on the CPU and has
// no L2 to get past, so that 16 MiB are enough there.
DeviceBenchOptions SuitableBenchOptions(const DeviceInfo& device);

// One thread, which is not the dispatcher's: it waits for the dispatcher in Create and Measure.
class DeviceBench final : public Bench {
 public:
  // All outlive the bench; the dispatcher must be running until the bench is destroyed. Takes the
  // GPU to fill the memory with numbers.
  static absl::StatusOr<std::unique_ptr<DeviceBench>> Create(Device& device, Node& node,
                                                             DispatcherMailbox& dispatcher,
                                                             const DeviceBenchOptions& options);
  ~DeviceBench() override;

  std::vector<policies::Variant> Candidates(const policies::Problem& problem,
                                            int sm_budget) override;
  absl::StatusOr<Measurement> Measure(std::span<const Candidate> set, policies::Form form,
                                      int sm_budget, int samples) override;

 private:
  class Fill;
  class SetRun;

  DeviceBench(Device& device, Node& node, DispatcherMailbox& dispatcher,
              const DeviceBenchOptions& options)
      : device_(device), node_(node), dispatcher_(dispatcher), options_(options) {}
  absl::Status Init();
  // Gives `lease` the GPU and waits until it gives it back.
  absl::Status RunLease(Lease& lease);
  Lease::Words words();
  Address TimelineOf(size_t member) const;  // of a set
  void Place(Op& op);
  absl::StatusOr<Op> MakeOp(const policies::Problem& problem) const;

  struct FreeDeleter {
    void operator()(void* data) const { std::free(data); }
  };

  Device& device_;
  Node& node_;
  DispatcherMailbox& dispatcher_;
  const DeviceBenchOptions options_;
  Allocation memory_;
  uint64_t input_bytes_ = 0;  // of memory_: A and W; what follows takes D
  uint64_t output_bytes_ = 0;
  // Registered: a page of timeline words, then kPatternBytes of numbers.
  std::unique_ptr<uint8_t, FreeDeleter> host_;
  Address host_address_ = 0;
  // What later measurements start from.
  uint64_t signals_ = 0;
  uint64_t input_cursor_ = 0, output_cursor_ = 0;
  int64_t launch_ns_ = 0;  // of host time that copies must cover, per launch
  bool hung_ = false;      // something may still run: the memory must stay
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_DEVICE_BENCH_H_
