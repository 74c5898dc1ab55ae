// How each transport launches a collective on CUDA: one function and one file each. All enqueue
// every rank's part on the rank's stream; whoever calls them signals behind it, unless kernels do
// (CollectiveContext::signalled).
#ifndef CONCERT_KERNELS_COMM_TRANSPORTS_H_
#define CONCERT_KERNELS_COMM_TRANSPORTS_H_

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/op.h"

namespace concert::kernels::cuda {

// REQUIRES of all: parts of one kind, which is no barrier, in rank order.

// Ranks that share one GPU, any number up to 64.
absl::Status LaunchLocal(CollectiveContext& context, std::span<const Op* const> parts);
// The others: every rank on a GPU of its own.
absl::Status LaunchNccl(CollectiveContext& context, std::span<const Op* const> parts);
// REQUIRES: work.transports of every part has it, and CollectiveContext::exchange is there.
absl::Status LaunchPeer(CollectiveContext& context, std::span<const Op* const> parts);
// REQUIRES: work.transports of every part has it.
absl::Status LaunchCopies(CollectiveContext& context, std::span<const Op* const> parts);
// REQUIRES: as LaunchPeer.
absl::Status LaunchHybrid(CollectiveContext& context, std::span<const Op* const> parts);

// What one rank keeps, by choice.sms blocks on a stream of its own. REQUIRES: multiples of
// kPeerAlignment; choice.sms > 0; the GPU has peer_push; the rank's context is current.
absl::Status LaunchOwnCopy(const CollectiveContext& context, size_t index, CUstream stream,
                           Address target, Address source, uint64_t bytes);

// call(i, rank) for every rank as CollectiveContext::each_rank has it, where the context of the
// rank's GPU is current.
absl::Status ForEachRank(
    const CollectiveContext& context,
    absl::FunctionRef<absl::Status(size_t i, const CollectiveRank& rank)> call);

// ---- Order among the ranks' streams

// The first rank's stream waits for all earlier work of every rank's.
absl::Status Join(const CollectiveContext& context);
// Every rank's stream waits for all earlier work of the first rank's.
absl::Status Fork(const CollectiveContext& context);
// Every rank's stream waits for all earlier work of every rank's: one hop, where Join and Fork take
// two, for the square of the calls.
absl::Status Meet(const CollectiveContext& context);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_TRANSPORTS_H_
