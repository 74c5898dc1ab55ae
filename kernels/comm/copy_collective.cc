// Copy engines carry what peers need. What a rank keeps for itself is copied by blocks of ours,
// beside the others on a stream of its own, or, where the choice names none, by engines as well:
// its neighbour fetches it and sends it back. Copies within a GPU the driver makes with a kernel
// on all SMs, which waits for one that holds them, and what an engine reaches there is a quarter of
// what it reaches to a peer: 32 MiB take 380 us, there and back 188 (two H100s, ADR 23).
#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/comm/messages.h"
#include "kernels/comm/peer_args.h"
#include "kernels/comm/peer_shares.h"
#include "kernels/comm/transports.h"
#include "kernels/cuda_api/driver.h"

namespace concert::kernels::cuda {
namespace {

// `bytes` of some rank's memory to where another wants them, on rank `i`'s stream.
absl::Status Copy(const CollectiveContext& context, size_t i, Address target, Address source,
                  uint64_t bytes) {
  if (target == source || bytes == 0) return absl::OkStatus();
  const CollectiveRank& rank = context.ranks[i];
  CONCERT_RETURN_IF_DRIVER_ERROR(context.api.driver, rank.gpu, cuMemcpyDtoDAsync, target, source,
                                 bytes, rank.stream);
  return absl::OkStatus();
}

// Calls push(peer) for the peers of rank `i` from the `first`th after it on: the nearest first, so
// that no GPU is the target of all at once, and one after the other, since one copy fills a GPU's
// links.
template <typename Push>
absl::Status PushToPeers(size_t ranks, size_t i, size_t first, Push push) {
  absl::Status status;
  for (size_t step = first; step < ranks && status.ok(); ++step) status = push((i + step) % ranks);
  return status;
}

// One collective's messages, and by what means a rank's own come to be where they are due.
class CopyPlan {
 public:
  CopyPlan(const CollectiveContext& context, std::span<const Op* const> parts)
      : context_(context), parts_(parts), messages_(MessagesOf(*parts.front())) {}

  size_t Next(size_t i) const { return (i + 1) % parts_.size(); }
  size_t Previous(size_t i) const { return (i + parts_.size() - 1) % parts_.size(); }
  bool Sends(size_t i) const { return !messages_.from_root || i == args(i).root; }

  uint64_t bytes() const { return messages_.bytes; }
  // Where what rank `from` has for rank `to` lies, and where it is due.
  Address Source(size_t from, size_t to) const { return args(from).src + to * messages_.src_step; }
  Address Target(size_t from, size_t to) const { return args(to).dst + from * messages_.dst_step; }

  bool BlocksKeep(size_t i) const { return CopiesToItself(*parts_[i], i) && HasBlocks(i); }
  bool NeighbourKeeps(size_t i) const { return CopiesToItself(*parts_[i], i) && !HasBlocks(i); }
  // Whether the rank's message to that neighbour is still to come then: it may be the same bytes.
  bool MessageFollows(size_t i) const { return NeighbourKeeps(i) && messages_.src_step != 0; }
  bool AnyMessageFollows() const {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (MessageFollows(i)) return true;
    }
    return false;
  }

 private:
  const CollectiveArgs& args(size_t i) const { return parts_[i]->collective; }
  bool HasBlocks(size_t i) const {
    const bool aligned = (Source(i, i) | Target(i, i) | messages_.bytes) % kPeerAlignment == 0;
    return aligned && context_.choice.sms > 0 && context_.ranks[i].kernels->peer_push != nullptr;
  }

  const CollectiveContext& context_;
  const std::span<const Op* const> parts_;
  const Messages messages_;
};

// On the rank's side stream, behind what its own stream had done when the ranks met: it touches
// nobody else's memory, so it waits for nobody else. REQUIRES: Meet came right before.
absl::Status KeepByBlocks(const CollectiveContext& context, const CopyPlan& plan, size_t i) {
  const Driver& driver = context.api.driver;
  const CollectiveRank& rank = context.ranks[i];
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuStreamWaitEvent, rank.side_stream, rank.event,
                                 0);
  if (absl::Status status = LaunchOwnCopy(context, i, rank.side_stream, plan.Target(i, i),
                                          plan.Source(i, i), plan.bytes());
      !status.ok()) {
    return status;
  }
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuEventRecord, rank.side_event,
                                 rank.side_stream);
  return absl::OkStatus();
}

// On rank `i`'s stream: what the rank before keeps goes to where that rank's message is due here,
// and back to where it is due there. The message comes when rank.event has.
absl::Status KeepForNeighbour(const CollectiveContext& context, const CopyPlan& plan, size_t i) {
  const CollectiveRank& rank = context.ranks[i];
  const size_t owner = plan.Previous(i);
  const Address here = plan.Target(owner, i);
  absl::Status status = Copy(context, i, here, plan.Source(owner, owner), plan.bytes());
  if (status.ok()) status = Copy(context, i, plan.Target(owner, owner), here, plan.bytes());
  if (!status.ok()) return status;
  CONCERT_RETURN_IF_DRIVER_ERROR(context.api.driver, rank.gpu, cuEventRecord, rank.event,
                                 rank.stream);
  return absl::OkStatus();
}

// To all but the next where that one keeps something for the rank first.
absl::Status SendToPeers(const CollectiveContext& context, const CopyPlan& plan, size_t i) {
  const size_t first = plan.NeighbourKeeps(i) ? 2 : 1;
  return PushToPeers(context.ranks.size(), i, first, [&](size_t peer) {
    return Copy(context, i, plan.Target(i, peer), plan.Source(i, peer), plan.bytes());
  });
}

absl::Status SendToNeighbour(const CollectiveContext& context, const CopyPlan& plan, size_t i) {
  if (!plan.MessageFollows(i)) return absl::OkStatus();
  const CollectiveRank& rank = context.ranks[i];
  const size_t next = plan.Next(i);
  CONCERT_RETURN_IF_DRIVER_ERROR(context.api.driver, rank.gpu, cuStreamWaitEvent, rank.stream,
                                 context.ranks[next].event, 0);
  return Copy(context, i, plan.Target(i, next), plan.Source(i, next), plan.bytes());
}

absl::Status AwaitBlocks(const CollectiveContext& context, const CopyPlan& plan) {
  for (size_t i = 0; i < context.ranks.size(); ++i) {
    if (!plan.BlocksKeep(i)) continue;
    const CollectiveRank& rank = context.ranks[i];
    CONCERT_RETURN_IF_DRIVER_ERROR(context.api.driver, rank.gpu, cuStreamWaitEvent, rank.stream,
                                   rank.side_event, 0);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LaunchCopies(CollectiveContext& context, std::span<const Op* const> parts) {
  const CopyPlan plan(context, parts);
  absl::Status status = Meet(context);  // peers' memory is ours from here
  if (!status.ok()) return status;
  status = ForEachRank(context, [&](size_t i, const CollectiveRank&) {
    absl::Status its;
    if (plan.BlocksKeep(i)) its = KeepByBlocks(context, plan, i);
    if (its.ok() && plan.NeighbourKeeps(plan.Previous(i))) its = KeepForNeighbour(context, plan, i);
    return its.ok() && plan.Sends(i) ? SendToPeers(context, plan, i) : its;
  });
  if (status.ok() && plan.AnyMessageFollows()) {
    status = ForEachRank(context, [&](size_t i, const CollectiveRank&) {
      return SendToNeighbour(context, plan, i);
    });
  }
  // Peers need what this rank has sent, and only the rank itself what its blocks have kept.
  if (status.ok()) status = Meet(context);
  return status.ok() ? AwaitBlocks(context, plan) : status;
}

absl::Status SpreadShares(CollectiveContext& context, std::span<const Op* const> parts) {
  const absl::Status status = ForEachRank(context, [&](size_t i, const CollectiveRank&) {
    const Share share = ShareOf(*parts[i], i, parts.size());
    const Address source = parts[i]->collective.dst + share.begin;
    return PushToPeers(parts.size(), i, 1, [&](size_t peer) {
      return Copy(context, i, parts[peer]->collective.dst + share.begin, source, share.bytes);
    });
  });
  return status.ok() ? Meet(context) : status;
}

}  // namespace concert::kernels::cuda
