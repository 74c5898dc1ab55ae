// Collectives: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, barrier. Counts as
// concert_collective_body; in-place rules as NCCL's.
#ifndef CONCERT_KERNELS_COMM_COLLECTIVE_OP_H_
#define CONCERT_KERNELS_COMM_COLLECTIVE_OP_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

inline constexpr uint64_t kMaxCollectiveCount = uint64_t{1} << 40;

// Which transports could carry this rank's part; `pool`: all its memory is of the pool. NCCL always
// can. Peer kernels touch peers' memory, which pool memory alone allows, 16 bytes at a time; small
// messages go through inboxes, so that any memory will do. Copy engines reach all memory and reduce
// nothing, and by them a broadcast to several peers would leave its root as often.
policies::TransportSet TransportsOf(const Op& op, uint64_t ranks, bool pool);

// Checks one rank's part; that the ranks agree is the rendezvous' business. Rules beyond bounds:
// - count >= 1, but 0 for a barrier, which has no operands either.
// - src and dst of every rank are present (of broadcast too: src of other ranks than the root is
// not read).
// - reduction is 0 but for all_reduce and reduce_scatter; root is 0 but for broadcast, where root <
// ranks.
// - src and dst are disjoint or in place: the same range (all_reduce, broadcast), src the rank's
//   own of the `ranks` slots of dst (all_gather), dst the rank's own slot of src (reduce_scatter).
//   In another's it would change what that one is sent. all_to_all is never in place.
Failure AdmitCollective(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

// Of this rank's part; the other ranks have their own.
Accesses AccessesOfCollective(const Op& op);

// One part per rank, in rank order, all of one kind, count, dtype, reduction and root. Reductions
// add in rank order in fp32 and round once, so that every rank gets the same bits. max and min
// ignore NaN as fmax does.
void ComputeCollective(std::span<const Op* const> parts);

namespace cuda {
// In builds with CUDA. Enqueues all ranks' parts, one per entry of context.ranks: NCCL between
// GPUs, own kernels among ranks that share one. Each rank's stream then holds its part: later work
// on it runs after the rank's result is complete.
absl::Status LaunchCollective(CollectiveContext& context, std::span<const Op* const> parts);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_COMM_COLLECTIVE_OP_H_
