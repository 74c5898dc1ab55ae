#include "kernels/comm/transports.h"

namespace concert::kernels::cuda {

absl::Status ForEachRank(
    const CollectiveContext& context,
    absl::FunctionRef<absl::Status(size_t i, const CollectiveRank& rank)> call) {
  return context.each_rank(context.ranks.size(), [&](size_t i) -> absl::Status {
    const CollectiveRank& rank = context.ranks[i];
    CONCERT_RETURN_IF_DRIVER_ERROR(context.api.driver, rank.gpu, cuCtxSetCurrent, rank.context);
    return call(i, rank);
  });
}

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
  absl::Status status = ForEachRank(context, [&](size_t, const CollectiveRank& rank) {
    return driver.ToStatus(driver.cuEventRecord(rank.event, rank.stream), "cuEventRecord",
                           rank.gpu);
  });
  if (!status.ok()) return status;
  return ForEachRank(context, [&](size_t, const CollectiveRank& rank) -> absl::Status {
    for (const CollectiveRank& peer : context.ranks) {
      if (peer.stream == rank.stream) continue;
      CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuStreamWaitEvent, rank.stream, peer.event,
                                     0);
    }
    return absl::OkStatus();
  });
}

}  // namespace concert::kernels::cuda
