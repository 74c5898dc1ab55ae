// What the ranks of one list of GPUs exchange through: memory on every GPU that all of them write,
// and the count of collectives that have gone this way. Those of one channel are ordered on every
// GPU.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_PEER_CHANNEL_H_
#define CONCERT_DAEMON_DEVICE_CUDA_PEER_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/cuda/cuda_device.h"
#include "kernels/cuda_api/launch_context.h"

namespace concert::daemon::cuda {

class PeerChannel {
 public:
  // `devices` by rank, each another GPU; they outlive the channel. Control thread.
  static absl::StatusOr<std::unique_ptr<PeerChannel>> Open(const kernels::cuda::Driver& driver,
                                                           std::vector<CudaDevice*> devices);
  PeerChannel(const PeerChannel&) = delete;
  PeerChannel& operator=(const PeerChannel&) = delete;
  ~PeerChannel();

  // Orders the next collective, whose ranks' streams are of `lanes`, behind the one before, gives
  // it its epoch and every rank its memory. The collective issuer's thread.
  absl::Status Enter(std::span<const Lane> lanes, std::span<kernels::cuda::CollectiveRank> ranks,
                     kernels::cuda::CollectiveContext& context);

 private:
  PeerChannel(const kernels::cuda::Driver& driver, std::vector<CudaDevice*> devices)
      : driver_(driver), devices_(std::move(devices)), lanes_(devices_.size(), policies::kNoLane) {}
  absl::Status ForgetEpochs(const kernels::cuda::CollectiveContext& context);

  const kernels::cuda::Driver& driver_;
  const std::vector<CudaDevice*> devices_;
  std::vector<Allocation> exchanges_;  // by rank
  std::vector<Lane> lanes_;            // by rank: of the collective before
  uint32_t epoch_ = 0;
};

}  // namespace concert::daemon::cuda

#endif  // CONCERT_DAEMON_DEVICE_CUDA_PEER_CHANNEL_H_
