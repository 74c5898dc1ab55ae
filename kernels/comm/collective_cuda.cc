#include "absl/strings/str_cat.h"
#include "kernels/comm/collective_op.h"
#include "kernels/comm/transports.h"

namespace concert::kernels::cuda {

using policies::Transport;

absl::Status LaunchCollective(CollectiveContext& context, std::span<const Op* const> parts) {
  if (parts.front()->kind == CONCERT_OP_BARRIER) {
    // Nothing to compute: each rank's stream passes once every rank's has come here.
    absl::Status status = Join(context);
    if (status.ok()) status = Fork(context);
    return status;
  }
  if (context.shared_gpu_kernels != nullptr) return LaunchLocal(context, parts);
  switch (context.choice.transport) {
    case Transport::kNccl:
      return LaunchNccl(context, parts);
    case Transport::kPeer:
      return LaunchPeer(context, parts);
    case Transport::kCopyEngine:
      return LaunchCopies(context, parts);
    case Transport::kHybrid:
      return LaunchHybrid(context, parts);
  }
  return absl::InternalError(
      absl::StrCat("transport ", static_cast<int>(context.choice.transport), " does not exist"));
}

}  // namespace concert::kernels::cuda
