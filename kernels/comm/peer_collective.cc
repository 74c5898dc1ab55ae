#include <algorithm>

#include "kernels/comm/messages.h"
#include "kernels/comm/peer_args.h"
#include "kernels/comm/peer_shares.h"
#include "kernels/comm/transports.h"
#include "kernels/cuda_api/launch_kernel.h"

namespace concert::kernels::cuda {
namespace {

enum class Way { kSmall, kPush, kReduce, kAllReduce };

struct Kernel {
  CUfunction function;
  int threads;
  size_t shared_bytes;
};

Kernel KernelOf(Way way, const KernelTable& kernels, const Op& op, bool reduces) {
  const int dtype = DtypeIndex(op.collective.dtype);
  switch (way) {
    case Way::kSmall:
      return {reduces ? kernels.peer_small_reduce[dtype] : kernels.peer_small_move[dtype],
              kPeerThreads, 0};
    case Way::kPush:
      return {kernels.peer_push, kPushThreads, sizeof(BulkMemory)};
    case Way::kReduce:
      return {kernels.peer_reduce[dtype], kReduceThreads, sizeof(BulkMemory)};
    case Way::kAllReduce:
      return {kernels.peer_all_reduce[dtype], kReduceThreads, sizeof(BulkMemory)};
  }
  return {};
}

// A broadcast to several peers: each fetches a share from the root and stores it for all of them,
// so that it leaves the root once. The root copies to itself, where it is out of place. `args`: of
// a broadcast; becomes that of one rank, for which all are senders of what lies at their src.
void FetchAndSpread(const Op& op, uint32_t rank, PeerArgs& args) {
  const uint32_t root = args.root, peers = args.ranks - 1;
  const bool is_root = rank == root;
  const Share share = is_root ? Share{0, args.src[root] == args.dst[root] ? 0 : args.bytes}
                              : ShareOf(op, (rank + args.ranks - root - 1) % args.ranks, peers);
  const char* const from = args.src[root] + share.begin;
  for (uint32_t to = 0; to < args.ranks; ++to) {
    // A copy to where it lies is none.
    args.dst[to] = (to == root) == is_root ? args.dst[to] + share.begin : const_cast<char*>(from);
  }
  args.src[rank] = from;
  args.fetches = !is_root;
  args.bytes = share.bytes;
  args.root = kNoRoot;
}

// Of a message, so that each of `blocks` has one, where there is enough: with whole stages a
// broadcast of 256 KiB to three peers kept three blocks of eight at work.
uint32_t TileBytesOf(const PeerArgs& args, unsigned blocks) {
  const uint64_t messages = args.src_step == 0 ? 1 : args.ranks;
  const uint64_t tiles = (blocks + messages - 1) / messages;
  const uint64_t bytes = (args.bytes / tiles + kMinTileBytes - 1) / kMinTileBytes * kMinTileBytes;
  return static_cast<uint32_t>(std::clamp<uint64_t>(bytes, kMinTileBytes, kStageBytes));
}

// `signals`: with them the collective is done.
absl::Status LaunchEach(CollectiveContext& context, std::span<const Op* const> parts, Way way,
                        unsigned blocks, bool signals, PeerArgs& args) {
  context.signalled = signals;
  const bool reduces = MessagesOf(*parts.front()).reduces;
  for (size_t i = 0; i < parts.size(); ++i) {
    args.src[i] = reinterpret_cast<const char*>(parts[i]->collective.src);
    args.dst[i] = reinterpret_cast<char*>(parts[i]->collective.dst);
    args.exchange[i] = context.ranks[i].exchange;
  }
  return ForEachRank(context, [&](size_t i, const CollectiveRank& rank) {
    PeerArgs its = args;
    its.rank = static_cast<uint32_t>(i);
    its.report = rank.report;
    if (signals) {
      its.signal_address = rank.signal.address;
      its.signal_value = rank.signal.value;
    }
    if (way == Way::kAllReduce || (way == Way::kReduce && args.dst_step != 0)) {
      its.bytes = ShareOf(*parts[i], i, parts.size()).bytes;
    }
    if (way == Way::kPush && args.root != kNoRoot && parts.size() > 2)
      FetchAndSpread(*parts[i], its.rank, its);
    its.tile_bytes = TileBytesOf(its, blocks);
    const Kernel kernel = KernelOf(way, *rank.kernels, *parts[i], reduces);
    return LaunchPairs(context.api.driver, rank.gpu, kernel.function, blocks, kernel.threads,
                       rank.stream, its, kernel.shared_bytes);
  });
}

PeerArgs ArgsOf(const CollectiveContext& context, const Op& op) {
  const Messages messages = MessagesOf(op);
  PeerArgs args = {};
  args.bytes = messages.bytes;
  args.src_step = messages.src_step;
  args.dst_step = messages.dst_step;
  args.ranks = static_cast<uint32_t>(context.ranks.size());
  args.root = messages.from_root ? op.collective.root : kNoRoot;
  args.epoch = context.epoch;
  args.reduction = static_cast<uint32_t>(op.collective.reduction);
  return args;
}

// As many as the choice says, but not more than there are stages to fill.
unsigned BulkBlocks(const CollectiveContext& context, uint64_t bytes) {
  const unsigned wanted = std::clamp<unsigned>(context.choice.sms, 1, kMaxPeerBlocks);
  return BlocksFor(bytes, static_cast<int>(kStageBytes), wanted);
}

}  // namespace

absl::Status LaunchOwnCopy(const CollectiveContext& context, size_t index, CUstream stream,
                           Address target, Address source, uint64_t bytes) {
  const CollectiveRank& rank = context.ranks[index];
  PeerArgs args = {};
  args.src[0] = reinterpret_cast<const char*>(source);
  args.dst[0] = reinterpret_cast<char*>(target);
  args.bytes = bytes;
  args.ranks = 1;
  args.root = kNoRoot;
  const unsigned blocks = BulkBlocks(context, bytes);
  args.tile_bytes = TileBytesOf(args, blocks);
  return LaunchPairs(context.api.driver, rank.gpu, rank.kernels->peer_push, blocks, kPushThreads,
                     stream, args, sizeof(BulkMemory));
}

absl::Status LaunchPeer(CollectiveContext& context, std::span<const Op* const> parts) {
  const Op& op = *parts.front();
  const Messages messages = MessagesOf(op);
  PeerArgs args = ArgsOf(context, op);
  if (FitsInboxes(messages.bytes, parts.size())) {
    const unsigned most = kSmallBlocksPerSm * std::max<unsigned>(context.choice.sms, 1);
    const unsigned blocks = BlocksFor((messages.bytes + 7) / 8, kPeerThreads, most);
    return LaunchEach(context, parts, Way::kSmall, blocks, /*signals=*/true, args);
  }
  if (op.kind == CONCERT_OP_ALL_REDUCE) {
    args.src_step = args.dst_step = ShareStep(op, parts.size());
    return LaunchEach(context, parts, Way::kAllReduce, BulkBlocks(context, messages.bytes),
                      /*signals=*/true, args);
  }
  return LaunchEach(context, parts, messages.reduces ? Way::kReduce : Way::kPush,
                    BulkBlocks(context, messages.bytes * parts.size()), /*signals=*/true, args);
}

absl::Status LaunchHybrid(CollectiveContext& context, std::span<const Op* const> parts) {
  const Op& op = *parts.front();
  PeerArgs args = ArgsOf(context, op);
  args.src_step = args.dst_step = ShareStep(op, parts.size());
  absl::Status status = LaunchEach(context, parts, Way::kReduce, BulkBlocks(context, args.bytes),
                                   /*signals=*/false, args);
  return status.ok() ? SpreadShares(context, parts) : status;
}

}  // namespace concert::kernels::cuda
