#include "daemon/device/sim/sim_node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/op_table.h"

namespace concert::daemon::sim {

absl::StatusOr<std::unique_ptr<SimNode>> SimNode::Open(const SimOptions& options) {
  if (options.gpus < 1 || options.gpus > static_cast<int>(SimEngine::kMaxGpus)) {
    return absl::InvalidArgumentError(absl::StrCat("the number of simulated GPUs is ", options.gpus,
                                                   "; it must be between 1 and ",
                                                   SimEngine::kMaxGpus));
  }
  if (options.lane_capacity < 1 || options.lane_capacity > SimEngine::kMaxLaneCapacity) {
    return absl::InvalidArgumentError(absl::StrCat("lane_capacity is ", options.lane_capacity));
  }
  if (options.model.sm_count < 2 || options.model.copy_engines < 1) {
    return absl::InvalidArgumentError("a simulated GPU needs at least 2 SMs and a copy engine");
  }
  return std::unique_ptr<SimNode>(new SimNode(options));
}

SimNode::SimNode(const SimOptions& options)
    : executor_(std::vector(static_cast<size_t>(options.gpus), options.model), options.pace,
                options.lane_capacity, options.compute) {
  for (int i = 0; i < options.gpus; ++i) {
    gpus_.push_back(std::make_unique<SimDevice>(i, options.memory_bytes, options.model, executor_));
  }
}

absl::StatusOr<Address> SimNode::RegisterHostMemory(void* data, uint64_t /*bytes*/) {
  return reinterpret_cast<Address>(data);
}

void SimNode::UnregisterHostMemory(void* /*data*/) {}

absl::Status SimNode::Connect(std::span<const int> gpus) {
  if (gpus.empty() || gpus.size() > SimEngine::kMaxParts) {
    return absl::UnimplementedError(absl::StrCat("a communicator of ", gpus.size(),
                                                 " ranks; the simulator serves 1 to ",
                                                 SimEngine::kMaxParts));
  }
  for (const int gpu : gpus) {
    if (gpu < 0 || gpu >= gpu_count()) {
      return absl::InvalidArgumentError(absl::StrCat("there is no GPU ", gpu, " on this node"));
    }
  }
  return absl::OkStatus();
}

absl::Status SimNode::LaunchCollective(std::span<const RankPart> parts,
                                       const policies::TransportChoice& choice) {
  if (parts.empty() || parts.size() > SimEngine::kMaxParts) {
    return absl::InvalidArgumentError(absl::StrCat("a collective of ", parts.size(), " ranks"));
  }
  for (const RankPart& part : parts) {
    const kernels::OpKind* kind = kernels::FindOpKind(part.op->kind);
    if (kind == nullptr || !kind->collective || part.op->kind != parts[0].op->kind ||
        part.gpu < 0 || part.gpu >= gpu_count() || !policies::IsCollectiveLane(part.lane)) {
      return absl::InvalidArgumentError(
          absl::StrCat("op kind ", part.op->kind, " on lane ", part.lane, " of GPU ", part.gpu));
    }
    if (absl::Status status = gpu(part.gpu).healthy(); !status.ok()) return status;
  }
  for (const RankPart& part : parts) {
    if (absl::Status status = gpu(part.gpu).CheckLaunchable(); !status.ok()) return status;
  }
  return executor_.LaunchCollective(parts, choice);
}

void SimNode::RunUntilIdle() {
  for (Time next = NextEvent(); next != kNever; next = NextEvent()) AdvanceTo(next);
}

}  // namespace concert::daemon::sim
