#include "daemon/device/cuda/peer_channel.h"

#include <unistd.h>

#include <utility>

#include "kernels/comm/peer_args.h"
#include "kernels/comm/transports.h"

namespace concert::daemon::cuda {

using kernels::cuda::CollectiveContext;
using kernels::cuda::CollectiveRank;
using kernels::cuda::PeerExchange;

absl::StatusOr<std::unique_ptr<PeerChannel>> PeerChannel::Open(const kernels::cuda::Driver& driver,
                                                               std::vector<CudaDevice*> devices) {
  std::unique_ptr<PeerChannel> channel(new PeerChannel(driver, std::move(devices)));
  for (CudaDevice* device : channel->devices_) {
    absl::StatusOr<Allocation> exchange = device->Allocate(sizeof(PeerExchange));
    if (!exchange.ok()) return exchange.status();
    if (exchange->export_fd >= 0) close(exchange->export_fd);  // no client may have it
    exchange->export_fd = -1;
    channel->exchanges_.push_back(*exchange);
  }
  return channel;
}

PeerChannel::~PeerChannel() {
  for (size_t rank = 0; rank < exchanges_.size(); ++rank) devices_[rank]->Free(exchanges_[rank]);
}

absl::Status PeerChannel::Enter(std::span<const Lane> lanes, std::span<CollectiveRank> ranks,
                                CollectiveContext& context) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    CollectiveRank& rank = ranks[i];
    CudaDevice& device = *devices_[i];
    rank.kernels = &device.kernel_table();
    rank.exchange = reinterpret_cast<PeerExchange*>(exchanges_[i].address);
    rank.report = device.peer_report();
    const Lane before = std::exchange(lanes_[i], lanes[i]);
    if (before == lanes[i] || before == policies::kNoLane) continue;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, rank.gpu, cuCtxSetCurrent, rank.context);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, rank.gpu, cuEventRecord, device.issuer_event(before),
                                   device.stream(before));
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, rank.gpu, cuStreamWaitEvent, rank.stream,
                                   device.issuer_event(before), 0);
  }
  if (++epoch_ == 0) {
    if (absl::Status status = ForgetEpochs(context); !status.ok()) return status;
    ++epoch_;
  }
  context.epoch = epoch_;
  return absl::OkStatus();
}

// After 2^32 collectives: tags from before could be taken for new ones.
absl::Status PeerChannel::ForgetEpochs(const CollectiveContext& context) {
  if (absl::Status status = Meet(context); !status.ok()) return status;
  for (size_t i = 0; i < context.ranks.size(); ++i) {
    const CollectiveRank& rank = context.ranks[i];
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, rank.gpu, cuCtxSetCurrent, rank.context);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, rank.gpu, cuMemsetD8Async, exchanges_[i].address, 0,
                                   sizeof(PeerExchange), rank.stream);
  }
  return Meet(context);
}

}  // namespace concert::daemon::cuda
