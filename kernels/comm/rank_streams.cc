#include "kernels/comm/transports.h"

namespace concert::kernels::cuda {

absl::Status Join(const CollectiveContext& context) {
  const Driver& driver = context.api.driver;
  const CollectiveRank& leader = context.ranks.front();
  for (const CollectiveRank& rank : context.ranks) {
    if (rank.stream == leader.stream) continue;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuCtxSetCurrent, rank.context);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuEventRecord, rank.event, rank.stream);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, leader.gpu, cuStreamWaitEvent, leader.stream, rank.event,
                                   0);
  }
  return absl::OkStatus();
}

absl::Status Fork(const CollectiveContext& context) {
  const Driver& driver = context.api.driver;
  const CollectiveRank& leader = context.ranks.front();
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, leader.gpu, cuCtxSetCurrent, leader.context);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, leader.gpu, cuEventRecord, leader.event, leader.stream);
  for (const CollectiveRank& rank : context.ranks) {
    if (rank.stream == leader.stream) continue;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuStreamWaitEvent, rank.stream, leader.event,
                                   0);
  }
  return absl::OkStatus();
}

absl::Status Meet(const CollectiveContext& context) {
  const Driver& driver = context.api.driver;
  const auto record = [&](size_t i) -> absl::Status {
    const CollectiveRank& rank = context.ranks[i];
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuCtxSetCurrent, rank.context);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuEventRecord, rank.event, rank.stream);
    return absl::OkStatus();
  };
  const auto wait = [&](size_t i) -> absl::Status {
    const CollectiveRank& rank = context.ranks[i];
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuCtxSetCurrent, rank.context);
    for (const CollectiveRank& peer : context.ranks) {
      if (peer.stream == rank.stream) continue;
      CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuStreamWaitEvent, rank.stream, peer.event,
                                     0);
    }
    return absl::OkStatus();
  };
  const size_t ranks = context.ranks.size();
  absl::Status status = context.each_rank(ranks, record);
  if (status.ok()) status = context.each_rank(ranks, wait);
  return status;
}

}  // namespace concert::kernels::cuda
