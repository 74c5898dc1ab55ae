// What a launcher needs of the device it launches on. Both contexts only borrow; the device owns
// everything.
#ifndef CONCERT_KERNELS_CUDA_API_LAUNCH_CONTEXT_H_
#define CONCERT_KERNELS_CUDA_API_LAUNCH_CONTEXT_H_

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/cuda_api/cuda_api.h"
#include "kernels/cuda_api/kernel_image.h"
#include "kernels/op.h"
#include "policies/cost/tuned_table.h"
#include "policies/seam/form.h"
#include "policies/seam/transport.h"
#include "policies/seam/variant.h"

namespace concert::kernels::cuda {

class GemmCache;      // kernels/gemm/gemm_cache.h
class StepSms;        // kernels/step/step_sms.h
struct StepReport;    // kernels/step/step_args.h
struct PeerExchange;  // kernels/comm/peer_args.h
struct PeerReport;

// For ops of one GPU. REQUIRES: the GPU's context is current; one thread at a time per GPU.
struct LaunchContext {
  const CudaApi& api;
  const KernelTable& kernels;
  cublasLtHandle_t cublaslt;
  GemmCache& gemm_cache;
  int gpu;
  CUstream stream;
  CUdeviceptr workspace;  // this stream's own
  size_t workspace_bytes;
  int sm_budget;  // SMs the op should use; 0: all. cuBLASLt takes it as a hint
  // Which tuned kernel serves best; without a table, without a row or without its variant the
  // heuristic's first does.
  policies::Form form = policies::Form::kSingle;
  policies::Degree degree = policies::Degree::kSolo;
  const policies::TunedTable* tuned = nullptr;
  const policies::Variant* variant = nullptr;  // not null: this one instead of a tuned one
  // Of launches in a graph, by kinds whose launches overlap (OpKind::launches_overlap): whether
  // this one may begin before the one ahead of it has ended, and whether it lets the next one do
  // so.
  bool begins_early = false, releases_next = false;
  // Launches are captured here to see their grids; nothing ever runs on it. Null: they stay
  // unknown.
  CUstream probe_stream = nullptr;
  StepSms* step_sms = nullptr;        // null: the step kernel is not to be used
  StepReport* step_report = nullptr;  // the lane's, where there is step_sms
};

// One rank of a collective.
struct CollectiveRank {
  int gpu;
  CUcontext context;
  CUstream stream;
  CUevent event;    // for ordering between ranks' streams; the collective issuer's own
  ncclComm_t comm;  // null where all ranks share one GPU
  // Of transports of ours; null where the GPUs' memory is out of each other's reach.
  const KernelTable* kernels = nullptr;
  PeerExchange* exchange = nullptr;  // of this collective's channel
  PeerReport* report = nullptr;
  CUstream side_stream = nullptr;  // the stream's own, beside it, for what a rank keeps
  CUevent side_event = nullptr;
  TimelineWrite signal = {};  // when its share is done; address 0: none
};

// call(rank) once for each of `ranks`, perhaps side by side on several threads; returns after the
// last of them, with the first rank's error. After an error those that have not begun may be left.
using EachRank = absl::FunctionRef<absl::Status(size_t ranks,
                                                absl::FunctionRef<absl::Status(size_t rank)> call)>;
inline absl::Status OneByOne(size_t ranks, absl::FunctionRef<absl::Status(size_t rank)> call) {
  absl::Status status;
  for (size_t rank = 0; rank < ranks && status.ok(); ++rank) status = call(rank);
  return status;
}

// For all ranks of one collective. REQUIRES: one collective at a time per node.
struct CollectiveContext {
  const CudaApi& api;
  std::span<const CollectiveRank> ranks;  // in rank order
  // Where all ranks share one GPU: its kernels and SMs. Null: every rank has a GPU and `comm` of
  // its own.
  const KernelTable* shared_gpu_kernels;
  int sm_count;  // that it may use
  EachRank each_rank;
  policies::TransportChoice choice = {};
  // Whether it may be the first of its kind between these ranks: NCCL then connects them and waits
  // for all, so that one thread has to begin it for all of them together.
  bool connects = false;
  uint32_t epoch = 0;  // of the channel: never 0, one more than the collective's before
  // Filled in by launchers: kernels write the ranks' signals, so that nobody else has to.
  bool signalled = false;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_LAUNCH_CONTEXT_H_
