#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/device/device.h"
#include "daemon/device/nvidia_hardware.h"
#include "daemon/device/sim/sim_node.h"

#ifdef CONCERT_WITH_CUDA
#include "daemon/device/cuda/cuda_node.h"
#endif

namespace concert::daemon {
namespace {

absl::StatusOr<std::unique_ptr<Node>> OpenCuda([[maybe_unused]] const NodeOptions& options) {
#ifdef CONCERT_WITH_CUDA
  return OpenCudaNode({.split_sums = options.split_sums,
                       .collective_sms = options.collective_sms,
                       .collective_spin_ns = options.collective_spin_ns,
                       .program_engine = options.program_engine,
                       .low_class_sm_percent = options.low_class_sm_percent,
                       .nvtx = options.nvtx});
#else
  return absl::UnimplementedError("this concertd was built without CUDA");
#endif
}

absl::StatusOr<std::unique_ptr<Node>> OpenSim(const NodeOptions& options) {
  sim::SimOptions sim_options;
  sim_options.gpus = options.sim_gpus;
  sim_options.model.collective_sms = options.collective_sms;
  sim_options.model.transports = policies::TransportSet::All();
  sim_options.pace = options.sim_pacing ? sim::Pace::kRealTime : sim::Pace::kFlatOut;
  return sim::SimNode::Open(sim_options);
}

std::string Gpus(int count) { return absl::StrCat(count, count == 1 ? " GPU" : " GPUs"); }

}  // namespace

absl::StatusOr<NodeChoice> OpenNode(const NodeOptions& options) {
  const bool automatic = options.device == "auto";
  if (!automatic && options.device != "cuda" && options.device != "sim") {
    return absl::InvalidArgumentError(
        absl::StrCat("device is '", options.device, "'; it must be auto, cuda or sim"));
  }
  std::string degraded;
  std::string why = "the configuration asks for it";
  if (options.device != "sim") {
    absl::StatusOr<std::unique_ptr<Node>> node = OpenCuda(options);
    if (node.ok()) {
      const int count = (*node)->gpu_count();
      return NodeChoice{*std::move(node), absl::StrCat("using cuda with ", Gpus(count)), ""};
    }
    const std::string hardware = FindNvidiaHardware(options.hardware_root);
    if (!hardware.empty()) {
      degraded = absl::StrCat("this machine has an NVIDIA GPU (", hardware,
                              ") that cannot be used: ", node.status().message());
    }
    if (automatic && options.refuse_unusable_gpu && !degraded.empty()) {
      return absl::Status(
          node.status().code(),
          absl::StrCat(degraded,
                       ". Repair the driver (nvidia-smi should work), or say device "
                       "= \"sim\"; unusable_gpu = \"error\" asks for this"));
    }
    if (!automatic) {
      return degraded.empty() ? node.status() : absl::Status(node.status().code(), degraded);
    }
    why = absl::StrCat("no usable GPU: ", node.status().message());
  }
  absl::StatusOr<std::unique_ptr<Node>> node = OpenSim(options);
  if (!node.ok()) return node.status();
  return NodeChoice{*std::move(node),
                    absl::StrCat(why, "; using the simulator with ", Gpus(options.sim_gpus)),
                    degraded};
}

}  // namespace concert::daemon
