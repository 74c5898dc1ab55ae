#include <bit>

#include "absl/strings/str_cat.h"
#include "kernels/comm/local_collective_args.h"
#include "kernels/comm/transports.h"
#include "kernels/cuda_api/launch_kernel.h"

namespace concert::kernels::cuda {
namespace {

constexpr unsigned kBlocksPerSm =
    4;  // 1024 threads per SM cover the latency of HBM at 16 bytes each

bool IsReduction(uint16_t kind) {
  return kind == CONCERT_OP_ALL_REDUCE || kind == CONCERT_OP_REDUCE_SCATTER;
}

struct LocalKernel {
  CUfunction function;
  uint32_t element_bytes;  // what it moves at once
};

// The 16-byte kernel if every rank's slots are aligned for it, else the one that moves single
// elements.
LocalKernel ChooseKernel(const KernelTable& kernels, std::span<const Op* const> parts) {
  const CollectiveArgs& args = parts.front()->collective;
  const uint32_t bytes = DtypeBytes(args.dtype);
  uint64_t bits = args.count * bytes;  // slots begin at multiples of this
  for (const Op* part : parts) bits |= part->collective.src | part->collective.dst;
  const bool wide = bits % 16 == 0;
  const uint32_t moved = wide ? 16 : bytes;
  const int word = std::countr_zero(moved);
  const int dtype = DtypeIndex(args.dtype);
  switch (parts.front()->kind) {
    case CONCERT_OP_ALL_REDUCE:
      return {kernels.all_reduce[dtype][wide], moved};
    case CONCERT_OP_REDUCE_SCATTER:
      return {kernels.reduce_scatter[dtype][wide], moved};
    case CONCERT_OP_ALL_GATHER:
      return {kernels.all_gather[word], moved};
    case CONCERT_OP_ALL_TO_ALL:
      return {kernels.all_to_all[word], moved};
    case CONCERT_OP_BROADCAST:
      return {kernels.broadcast[word], moved};
    default:
      return {nullptr, moved};
  }
}

// How many threads the kernel could use: one per item that it loops over.
uint64_t ItemsOf(uint16_t kind, uint64_t count, uint64_t ranks) {
  switch (kind) {
    case CONCERT_OP_ALL_GATHER:
    case CONCERT_OP_REDUCE_SCATTER:
      return count * ranks;
    case CONCERT_OP_ALL_TO_ALL:
      return count * ranks * ranks;
    default:
      return count;
  }
}

}  // namespace

absl::Status LaunchLocal(CollectiveContext& context, std::span<const Op* const> parts) {
  const CollectiveArgs& first = parts.front()->collective;
  const uint16_t kind = parts.front()->kind;
  if (parts.size() > kMaxLocalRanks) {
    return absl::UnimplementedError(
        absl::StrCat(parts.size(), " ranks share a GPU; at most ", kMaxLocalRanks, " can"));
  }
  const LocalKernel kernel = ChooseKernel(*context.shared_gpu_kernels, parts);
  if (kernel.function == nullptr) {
    return absl::UnimplementedError(absl::StrCat("op kind ", kind, " is no collective"));
  }
  LocalCollectiveArgs args;
  args.count = first.count * DtypeBytes(first.dtype) / kernel.element_bytes;
  args.ranks = static_cast<uint32_t>(parts.size());
  args.root = first.root;
  args.reduction = IsReduction(kind) ? static_cast<uint32_t>(first.reduction) : 0;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    args.src[rank] = reinterpret_cast<const void*>(parts[rank]->collective.src);
    args.dst[rank] = reinterpret_cast<void*>(parts[rank]->collective.dst);
  }
  const CollectiveRank& leader = context.ranks.front();
  if (absl::Status status = Join(context); !status.ok()) return status;
  const unsigned blocks = BlocksFor(ItemsOf(kind, args.count, args.ranks), kLocalCollectiveThreads,
                                    kBlocksPerSm * static_cast<unsigned>(context.sm_count));
  if (absl::Status status = LaunchKernel(context.api.driver, leader.gpu, kernel.function, blocks,
                                         kLocalCollectiveThreads, leader.stream, args);
      !status.ok()) {
    return status;
  }
  return Fork(context);
}

}  // namespace concert::kernels::cuda
