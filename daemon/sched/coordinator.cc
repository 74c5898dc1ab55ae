#include "daemon/sched/coordinator.h"

#include <algorithm>

#include "policies/cost/cost_model.h"

namespace concert::daemon {

CollectivePlan Coordinator::Decide(std::span<const RankPart> parts) const {
  CollectivePlan plan;
  for (const RankPart& part : parts) {
    const policies::DeviceModel& model = models_[static_cast<size_t>(part.gpu)];
    // As slow as its slowest GPU, and as wide as the widest: NCCL's kernels wait for each other.
    const double run_us = policies::CostOf(model, part.op->work).solo_us;
    plan.reservation.run_ns =
        std::max(plan.reservation.run_ns, static_cast<policies::Time>(run_us * 1e3));
    plan.reservation.sms =
        std::max(plan.reservation.sms, static_cast<uint16_t>(model.collective_sms));
  }
  // A barrier moves nothing and is over before anybody could make room for it.
  const bool moves = std::any_of(parts.begin(), parts.end(), [](const RankPart& part) {
    return part.op->work.link_bytes + part.op->work.hbm_bytes > 0;
  });
  if (!moves) plan.reservation.sms = 0;
  return plan;
}

}  // namespace concert::daemon
