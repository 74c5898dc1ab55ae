// Copy engines carry what peers need; what a rank keeps for itself is a copy on its own GPU, beside
// the others on a stream of its own. Older drivers make that with a kernel, which takes all SMs and
// waits for one that holds them; ours takes those that the choice names. Where it names none,
// newer drivers have an engine make it.
#include "kernels/comm/engine_copies.h"
#include "kernels/comm/messages.h"
#include "kernels/comm/peer_args.h"
#include "kernels/comm/peer_shares.h"
#include "kernels/comm/transports.h"

namespace concert::kernels::cuda {
namespace {

// `bytes` of rank `from`'s memory to where rank `to` wants them, on `stream` of `from`.
absl::Status Copy(const CollectiveContext& context, size_t from, CUstream stream, Address target,
                  Address source, uint64_t bytes) {
  if (target == source || bytes == 0) return absl::OkStatus();
  CONCERT_RETURN_IF_DRIVER_ERROR(context.api.driver, context.ranks[from].gpu, cuMemcpyDtoDAsync,
                                 target, source, bytes, stream);
  return absl::OkStatus();
}

// Calls push(peer) for each peer of `rank`: the next one first, so that no GPU is the target of all
// at once, and one after the other, since one copy fills a GPU's links.
template <typename Push>
absl::Status PushToPeers(const CollectiveContext& context, size_t rank, Push push) {
  const size_t ranks = context.ranks.size();
  for (size_t step = 1; step < ranks; ++step) {
    if (absl::Status status = push((rank + step) % ranks); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// What rank `i` keeps, on its side stream, behind what its own stream had done when the ranks met:
// it touches nobody else's memory, so it waits for nobody else. REQUIRES: Meet came right before.
absl::Status KeepOwn(const CollectiveContext& context, const Op& part, const Messages& messages,
                     size_t i) {
  if (!CopiesToItself(part, i)) return absl::OkStatus();
  const Driver& driver = context.api.driver;
  const CollectiveRank& rank = context.ranks[i];
  const Address source = part.collective.src + i * messages.src_step;
  const Address target = part.collective.dst + i * messages.dst_step;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuStreamWaitEvent, rank.side_stream, rank.event,
                                 0);
  const bool aligned = (source | target | messages.bytes) % kPeerAlignment == 0;
  const bool has_kernel = rank.kernels->peer_push != nullptr;
  const absl::Status status =
      aligned && has_kernel && context.choice.sms > 0
          ? LaunchOwnCopy(context, i, rank.side_stream, target, source, messages.bytes)
          : context.engine_copies->Copy(driver, rank.gpu, rank.side_stream, target, source,
                                        messages.bytes);
  if (!status.ok()) return status;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuEventRecord, rank.side_event,
                                 rank.side_stream);
  return absl::OkStatus();
}

absl::Status AwaitOwn(const CollectiveContext& context, std::span<const Op* const> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!CopiesToItself(*parts[i], i)) continue;
    const CollectiveRank& rank = context.ranks[i];
    CONCERT_RETURN_IF_DRIVER_ERROR(context.api.driver, rank.gpu, cuStreamWaitEvent, rank.stream,
                                   rank.side_event, 0);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LaunchCopies(CollectiveContext& context, std::span<const Op* const> parts) {
  const Messages messages = MessagesOf(*parts.front());
  absl::Status status = Meet(context);  // peers' memory is ours from here
  if (!status.ok()) return status;
  status = ForEachRank(context, [&](size_t i, const CollectiveRank& rank) -> absl::Status {
    const Op& part = *parts[i];
    if (absl::Status kept = KeepOwn(context, part, messages, i); !kept.ok()) return kept;
    if (messages.from_root && i != part.collective.root) return absl::OkStatus();
    return PushToPeers(context, i, [&](size_t peer) {
      return Copy(context, i, rank.stream, parts[peer]->collective.dst + i * messages.dst_step,
                  part.collective.src + peer * messages.src_step, messages.bytes);
    });
  });
  // Peers need what this rank has sent, and only the rank itself what it has kept.
  if (status.ok()) status = Meet(context);
  return status.ok() ? AwaitOwn(context, parts) : status;
}

absl::Status SpreadShares(CollectiveContext& context, std::span<const Op* const> parts) {
  const absl::Status status = ForEachRank(context, [&](size_t i, const CollectiveRank& rank) {
    const Share share = ShareOf(*parts[i], i, parts.size());
    const Address source = parts[i]->collective.dst + share.begin;
    return PushToPeers(context, i, [&](size_t peer) {
      return Copy(context, i, rank.stream, parts[peer]->collective.dst + share.begin, source,
                  share.bytes);
    });
  });
  return status.ok() ? Meet(context) : status;
}

}  // namespace concert::kernels::cuda
