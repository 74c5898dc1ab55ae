#include "daemon/sched/coordinator.h"

#include <algorithm>
#include <utility>

#include "daemon/check.h"
#include "kernels/comm/messages.h"
#include "policies/cost/collective_cost.h"
#include "policies/seam/hash.h"

namespace concert::daemon {
namespace {

using policies::Transport;

// Ranks on one GPU have a kernel of their own, whatever transports there are between GPUs.
bool EachOnAGpuOfItsOwn(std::span<const RankPart> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (parts[i].gpu == parts[j].gpu) return false;
    }
  }
  return true;
}

// Of a broadcast: admission does not know who is the root.
bool IsRootThatCopiesToItself(const kernels::Op& op, uint64_t rank) {
  return op.kind == CONCERT_OP_BROADCAST && kernels::CopiesToItself(op, rank);
}

}  // namespace

Coordinator::Coordinator(std::vector<policies::DeviceModel> models, std::optional<Transport> only)
    : models_(std::move(models)) {
  CONCERT_CHECK(models_.size() <= 64);  // a bit each
  for (policies::DeviceModel& model : models_) {
    if (only && model.transports.Has(*only)) {
      model.transports = policies::TransportSet().Add(*only);
    }
  }
}

CollectivePlan Coordinator::Decide(std::span<const RankPart> parts) {
  policies::Work work = parts.front().op->work;
  if (!EachOnAGpuOfItsOwn(parts)) work.transports = {};
  // As slow as its slowest GPU, and as wide as the widest: ranks wait for each other.
  policies::DeviceModel model = models_[static_cast<size_t>(parts.front().gpu)];
  policies::Beside beside;  // on the GPU that has most to do
  uint64_t gpus = 0;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const RankPart& part = parts[rank];
    const policies::DeviceModel& its = models_[static_cast<size_t>(part.gpu)];
    work.transports = work.transports & part.op->work.transports;
    work.keeps |= part.op->work.keeps || IsRootThatCopiesToItself(*part.op, rank);
    model.transports = model.transports & its.transports;
    model.collective_sms = std::max(model.collective_sms, its.collective_sms);
    if (part.beside.us > beside.us) beside = part.beside;
    gpus |= uint64_t{1} << part.gpu;
  }
  CollectivePlan plan;
  const uint64_t block_bytes = kernels::BlockBytes(*parts.front().op, parts.size());
  const auto choose = [&] { return policies::ChooseTransport(model, work, block_bytes, beside); };
  plan.choice = beside.us > 0
                    ? choose()
                    : alone_.Of({.work = work, .gpus = gpus}, policies::HashWork(work), choose);
  plan.reservation.transport = plan.choice.transport;
  for (const RankPart& part : parts) {
    const policies::DeviceModel& its = models_[static_cast<size_t>(part.gpu)];
    const double run_us = policies::RunUs(its, work, block_bytes, plan.choice, beside);
    plan.reservation.run_ns =
        std::max(plan.reservation.run_ns, static_cast<policies::Time>(run_us * 1e3));
  }
  // A barrier moves nothing and is over before anybody could make room for it.
  const bool moves = std::any_of(parts.begin(), parts.end(), [](const RankPart& part) {
    return part.op->work.link_bytes + part.op->work.hbm_bytes > 0;
  });
  if (moves) plan.reservation.sms = plan.choice.sms;
  return plan;
}

}  // namespace concert::daemon
