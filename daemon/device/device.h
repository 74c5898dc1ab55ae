// The only door to hardware. A Node is all GPUs of one backend; a Device is one GPU. Two backends
// implement this: cuda/ and sim/. tests/conformance runs one suite against both.
//
// Threads: memory functions, RegisterHostMemory and Connect belong to the control thread, to that
// of its errands and to the tuner's, beside each other; Digest, Same, Copy and Prepare to that of
// errands; Variants to the tuner's. Launch, Signal and Order on a lane belong to one thread at a
// time: the GPU's dispatcher for the other lanes, the collective issuer for what LaunchCollective
// enqueues (Order onto a collective lane is the dispatcher's). Backends make those two safe beside
// each other and beside the memory functions. Everything that Launch, Signal, Order and
// LaunchCollective need exists before traffic: they allocate nothing and never wait for the GPU.
#ifndef CONCERT_DAEMON_DEVICE_DEVICE_H_
#define CONCERT_DAEMON_DEVICE_DEVICE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config/defaults.h"
#include "kernels/launch_request.h"
#include "kernels/op.h"
#include "kernels/program/program_engine.h"
#include "kernels/program/stalled_run.h"
#include "policies/cost/collective_cost.h"
#include "policies/cost/tuned_table.h"
#include "policies/seam/lanes.h"
#include "policies/seam/transport.h"
#include "policies/seam/variant.h"
#include "policies/seam/work.h"

namespace concert::daemon {

using kernels::Address;
using kernels::LaunchRequest;
using kernels::Op;
using kernels::TimelineWrite;
using policies::Lane;

// What a GPU is and can do. Capabilities are probed when the device opens, never looked up by name.
struct DeviceInfo {
  int gpu = 0;          // index on this node
  std::string backend;  // "sim" or "cuda"
  std::string name;     // "NVIDIA H200"
  std::array<uint8_t, 16> uuid{};
  uint64_t memory_bytes = 0;
  int compute_capability = 0;  // 90 for Hopper; 0 on sim
  std::string software;        // that times depend on: "driver 580.159.03, CUDA 13.0, cuBLASLt ..."
  bool peer_access = false;    // kernels and copy engines reach every other GPU of the node
  policies::DeviceModel model;
};

// A range of memory that kernels of the GPU can address.
struct Allocation {
  Address address = 0;
  uint64_t bytes = 0;  // usable; rounded up from what was asked
  int gpu = 0;
  bool pool = false;   // every GPU's kernels may touch it
  int export_fd = -1;  // the caller's to pass on and close; -1 if there is nothing to export
  uint64_t backend_handle = 0;
};

struct ImportRequest {
  uint32_t kind = 0;  // concert_import_kind
  int fd = -1;        // borrowed
  uint64_t offset = 0, bytes = 0, allocation_bytes = 0;
  std::array<uint8_t, 64> ipc_handle{};
};

// What a GPU's sensors say. Absent: the device has none, or its driver does not say.
struct Sensors {
  std::optional<uint64_t> memory_used_bytes;  // by all processes and the driver
  std::optional<double> power_watts, power_limit_watts;
  std::optional<uint32_t> sm_clock_mhz, memory_clock_mhz;
  std::optional<uint32_t> temperature_celsius;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // Zeroed pool memory, exportable to the client. RESOURCE_EXHAUSTED when the GPU is full. Once it
  // has faulted, neither this nor Import gives any: what was launched may still write where memory
  // was that its clients have given back.
  virtual absl::StatusOr<Allocation> Allocate(uint64_t bytes) = 0;
  // The client's own memory. INVALID_ARGUMENT when the handle does not fit what the request says.
  virtual absl::StatusOr<Allocation> Import(const ImportRequest& request) = 0;
  // Unmaps. REQUIRES: no launched op still uses the range.
  virtual void Free(const Allocation& allocation) = 0;

  // Of `bytes` at least 1 of the GPU's memory, which the client may be writing: what is read of it
  // is then anything, and nothing else goes wrong. Errands' thread; block, for milliseconds. Digest
  // is as kernels/digest/digest.h has it.
  virtual absl::StatusOr<uint64_t> Digest(Address data, uint64_t bytes) = 0;
  virtual absl::StatusOr<bool> Same(Address a, Address b, uint64_t bytes) = 0;
  // REQUIRES: the ranges do not overlap, and no launched op uses `to`.
  virtual absl::Status Copy(Address to, Address from, uint64_t bytes) = 0;

  // What Prepare of such a program wants as its workspace, which is to lie behind its arena: the
  // same wherever that is, kUnplacedArena for example. Errands' thread; takes milliseconds.
  virtual uint64_t WorkspaceBytes(const kernels::Program&) { return 0; }
  virtual uint64_t WorkspaceBytes(const kernels::Pass&) { return 0; }
  // Makes ready what runs of `program` launch: fills in its executable, if the device needs one,
  // and its stages or why there are none. An error, naming the op, if one of its ops cannot run
  // here. Errands' thread; takes milliseconds.
  virtual absl::Status Prepare(kernels::Program&) { return absl::OkStatus(); }
  // The same for launches of several runs of `pass`.
  virtual absl::Status Prepare(kernels::Pass&) { return absl::OkStatus(); }

  // Starts `launch` on its lane. On an error nothing of it was started and no timeline will be
  // written, except after a device fault, which healthy() then reports.
  virtual absl::Status Launch(const LaunchRequest& launch) = 0;
  // Performs `writes` once all work enqueued on `lane` so far is done.
  virtual absl::Status Signal(Lane lane, std::span<const TimelineWrite> writes) = 0;
  // Makes later work on `lane` wait for all work enqueued so far on `before`.
  virtual absl::Status Order(Lane lane, Lane before) = 0;

  // The variants that a launch of `problem` on `sm_budget` SMs (0: all) may be told to use, the
  // likeliest first. Empty if there is nothing to choose from. Control or tuner thread; takes
  // hundreds of microseconds and disturbs no launch.
  virtual std::vector<policies::Variant> Variants(const policies::Problem& problem,
                                                  int sm_budget) = 0;
  // Later launches take the variant of (problem, sm_budget, degree, form); without a row, or where
  // the device no longer offers the row's variant, its default. Null: always the default.
  // Dispatcher thread.
  virtual void UseTuned(std::shared_ptr<const policies::TunedTable> tuned) = 0;

  // Tells of runs of programs that the GPU has given up since this was last called; they do not end
  // before they have been told. Dispatcher thread.
  virtual void TakeStalledRuns(absl::FunctionRef<void(const kernels::StalledRun&)>) {}

  // Not OK once the GPU has faulted: no further launch can succeed.
  virtual absl::Status healthy() const = 0;
};

// One rank's share of a collective, from the dispatcher that offers it to the launch of all.
struct RankPart {
  int gpu = 0;
  Lane lane = policies::kCollectiveLane;
  const Op* op = nullptr;  // its dispatcher's, which leaves it as it is until the part's outcome
  uint32_t id = 0;         // its dispatcher's name for the op; devices do not look at it
  TimelineWrite signal;    // when the rank's share is done
  policies::Beside beside = {};  // when it was offered; devices do not look at it
};

class Node {
 public:
  virtual ~Node() = default;

  virtual int gpu_count() const = 0;
  virtual Device& gpu(int index) = 0;
  // Not older than a tenth of a second. Any thread; may take milliseconds, so not one that
  // schedules. Devices without sensors say nothing.
  virtual Sensors ReadSensors(int) { return {}; }

  // Makes [data, data + bytes), page-aligned, writable by every GPU's Signal. Returns the device
  // address of `data`. The memory must outlive the registration.
  virtual absl::StatusOr<Address> RegisterHostMemory(void* data, uint64_t bytes) = 0;
  virtual void UnregisterHostMemory(void* data) = 0;

  // The clock of a model, where there is one: now, and when the last signal of the GPU was written.
  // Absent: signals are seen when they are written, and the host's clock tells. Any thread.
  struct ModelTimes {
    policies::Time now = 0, last_signal = 0;
  };
  virtual std::optional<ModelTimes> ReadModelTimes(int) { return {}; }
  // What the times of collectives depend on besides what DeviceInfo says: "NCCL 2.28.3".
  virtual std::string collective_software() const { return ""; }

  // Prepares collectives among ranks on these GPUs (rank i on gpus[i]); a list seen before costs
  // nothing. May take a second. UNIMPLEMENTED, naming the reason, for a list that cannot be served.
  virtual absl::Status Connect(std::span<const int> gpus) = 0;
  // Starts all ranks' parts, then their signals, before it returns. Called by one thread only, so
  // that every GPU sees one order. REQUIRES: Connect succeeded for the same GPUs, and every part
  // and GPU has the transport.
  virtual absl::Status LaunchCollective(std::span<const RankPart> parts,
                                        const policies::TransportChoice& choice) = 0;
};

struct NodeOptions {
  std::string device = "auto";  // auto, cuda, sim
  int sim_gpus = 2;
  int collective_sms = 0;  // DeviceModel::collective_sms
  // cuda: for how long threads that launch collectives spin after the last before they sleep.
  int64_t collective_spin_ns = defaults::kSpinUs * 1'000;
  bool sim_pacing = true;  // sim: real-time pacing; false: as fast as the CPU computes
  kernels::SplitSums split_sums = kernels::SplitSums::kRepeatable;        // cuda
  kernels::ProgramEngine program_engine = kernels::ProgramEngine::kAuto;  // cuda
  int low_class_sm_percent = defaults::kLowClassSmPercent;                // cuda
  bool nvtx = false;                 // cuda: an NVTX range around each launch
  bool refuse_unusable_gpu = false;  // auto: an error instead of NodeChoice::degraded
  std::string hardware_root = "/";   // where to look for sys/ and dev/
};

struct NodeChoice {
  std::unique_ptr<Node> node;
  std::string why;  // for the log: what was taken and why
  // Why this is less than the machine has: an NVIDIA GPU that cannot be used. Empty: all is well.
  std::string degraded;
};

// Opens the backend that `options.device` asks for; "auto" takes cuda where a usable GPU is, else
// sim, and says so in `degraded` where there is a GPU that cannot be used.
absl::StatusOr<NodeChoice> OpenNode(const NodeOptions& options);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_DEVICE_DEVICE_H_
