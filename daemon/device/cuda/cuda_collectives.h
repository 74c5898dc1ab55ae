// Collectives among the GPUs of a node: which lists of GPUs can be served, their NCCL
// communicators, launches.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_CUDA_COLLECTIVES_H_
#define CONCERT_DAEMON_DEVICE_CUDA_CUDA_COLLECTIVES_H_

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/device/cuda/cuda_device.h"
#include "daemon/device/cuda/cuda_options.h"
#include "daemon/device/cuda/peer_channel.h"
#include "daemon/device/cuda/rank_threads.h"
#include "kernels/cuda_api/launch_context.h"
#include "proto/mutex.h"

namespace concert::daemon::cuda {

class CudaCollectives {
 public:
  CudaCollectives(const kernels::cuda::CudaApi& api,
                  std::span<const std::unique_ptr<CudaDevice>> devices, const CudaOptions& options)
      : api_(api),
        devices_(devices),
        sms_(options.collective_sms),
        rank_threads_(devices.size(), options.collective_spin_ns) {}
  CudaCollectives(const CudaCollectives&) = delete;
  CudaCollectives& operator=(const CudaCollectives&) = delete;
  ~CudaCollectives();

  // As Node's.
  std::string software() const;
  absl::Status Connect(std::span<const int> gpus);
  // As Node's LaunchCollective. The collective issuer's thread.
  absl::Status Launch(std::span<const RankPart> parts, const policies::TransportChoice& choice);

 private:
  static constexpr size_t kMaxConnections = 64;
  static constexpr size_t kMaxRanks = 64;

  struct Connection {
    std::vector<int> gpus;          // of rank i
    std::vector<ncclComm_t> comms;  // of rank i; empty where all ranks share one GPU
    // Of normal and of high priority, so that one does not wait for the other; null where GPUs have
    // no peer kernels or are out of each other's reach.
    std::array<std::unique_ptr<PeerChannel>, 2> channels;
  };

  const Connection* Find(std::span<const int> gpus) const;
  absl::Status CheckServable(std::span<const int> gpus) const;
  absl::Status MakeComms(Connection& connection) const;
  absl::Status OpenChannels(Connection& connection) const;
  // Runs every kind once on the control streams: NCCL allocates and loads kernels at their first
  // use.
  absl::Status WarmUp(const Connection& connection);
  // `lanes`: of the ranks' streams; empty in a warm-up, which signals nobody.
  absl::Status Enqueue(const Connection& connection, std::span<const Lane> lanes,
                       std::span<kernels::cuda::CollectiveRank> ranks,
                       std::span<const Op* const> ops, const policies::TransportChoice& choice)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(launch_mutex_);

  const kernels::cuda::CudaApi& api_;
  const std::span<const std::unique_ptr<CudaDevice>> devices_;
  const int sms_;
  // One thread at a time; the issuer never.
  Mutex connect_mutex_;
  // Grows only. Whoever connects fills an entry, then stores count_ (release); the issuer loads
  // count_ (acquire) before it reads entries.
  std::array<Connection, kMaxConnections> connections_;
  // Of every list that names one GPU alone: there is nothing to connect.
  const Connection on_one_gpu_;
  std::atomic<size_t> count_ = 0;
  // One group at a time, so that a warm-up and the issuer's launch reach all GPUs in one order.
  // Without it, two GPUs could each wait for the other's second collective. Uncontended but while a
  // new list connects.
  Mutex launch_mutex_;
  RankThreads rank_threads_ ABSL_GUARDED_BY(launch_mutex_);
};

}  // namespace concert::daemon::cuda

#endif  // CONCERT_DAEMON_DEVICE_CUDA_CUDA_COLLECTIVES_H_
