#include <bit>

#include "absl/strings/str_cat.h"
#include "kernels/comm/collective_op.h"
#include "kernels/comm/local_collective_args.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/cuda_api/launch_kernel.h"

namespace concert::kernels::cuda {
namespace {

constexpr unsigned kBlocksPerSm =
    4;  // 1024 threads per SM cover the latency of HBM at 16 bytes each

// The first rank's stream waits for all earlier work of every rank's.
absl::Status Join(const CollectiveContext& context) {
  const Driver& driver = context.api.driver;
  const CollectiveRank& leader = context.ranks.front();
  for (const CollectiveRank& rank : context.ranks) {
    if (rank.stream == leader.stream) continue;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuCtxSetCurrent, rank.context);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuEventRecord, rank.event, rank.stream);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, leader.gpu, cuStreamWaitEvent, leader.stream, rank.event,
                                   0);
  }
  return absl::OkStatus();
}

// Every rank's stream waits for all earlier work of the first rank's.
absl::Status Fork(const CollectiveContext& context) {
  const Driver& driver = context.api.driver;
  const CollectiveRank& leader = context.ranks.front();
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, leader.gpu, cuCtxSetCurrent, leader.context);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, leader.gpu, cuEventRecord, leader.event, leader.stream);
  for (const CollectiveRank& rank : context.ranks) {
    if (rank.stream == leader.stream) continue;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, rank.gpu, cuStreamWaitEvent, rank.stream, leader.event,
                                   0);
  }
  return absl::OkStatus();
}

// ---- All ranks on one GPU

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

// ---- Every rank on a GPU of its own

ncclDataType_t NcclType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16:
      return ncclBfloat16;
    case Dtype::kFp16:
      return ncclFloat16;
    case Dtype::kFp32:
    case Dtype::kFp8E4m3:  // admission lets none through
      break;
  }
  return ncclFloat32;
}

ncclRedOp_t NcclReduction(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ncclSum;
    case Reduction::kMax:
      return ncclMax;
    case Reduction::kMin:
      return ncclMin;
  }
  return ncclSum;
}

// All-to-all of NCCL before 2.28. REQUIRES: inside a group.
ncclResult_t SendReceive(const Nccl& nccl, const CollectiveArgs& args, size_t ranks,
                         const CollectiveRank& rank) {
  const uint64_t slot_bytes = args.count * DtypeBytes(args.dtype);
  const ncclDataType_t type = NcclType(args.dtype);
  for (size_t peer = 0; peer < ranks; ++peer) {
    const auto* src = reinterpret_cast<const void*>(args.src + peer * slot_bytes);
    auto* dst = reinterpret_cast<void*>(args.dst + peer * slot_bytes);
    ncclResult_t result =
        nccl.ncclSend(src, args.count, type, static_cast<int>(peer), rank.comm, rank.stream);
    if (result != ncclSuccess) return result;
    result = nccl.ncclRecv(dst, args.count, type, static_cast<int>(peer), rank.comm, rank.stream);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

// Adds one rank's part to the open group.
ncclResult_t AddPart(const Nccl& nccl, const Op& op, size_t ranks, const CollectiveRank& rank) {
  const CollectiveArgs& args = op.collective;
  const auto* src = reinterpret_cast<const void*>(args.src);
  auto* dst = reinterpret_cast<void*>(args.dst);
  const ncclDataType_t type = NcclType(args.dtype);
  switch (op.kind) {
    case CONCERT_OP_ALL_REDUCE:
      return nccl.ncclAllReduce(src, dst, args.count, type, NcclReduction(args.reduction),
                                rank.comm, rank.stream);
    case CONCERT_OP_ALL_GATHER:
      return nccl.ncclAllGather(src, dst, args.count, type, rank.comm, rank.stream);
    case CONCERT_OP_REDUCE_SCATTER:
      return nccl.ncclReduceScatter(src, dst, args.count, type, NcclReduction(args.reduction),
                                    rank.comm, rank.stream);
    case CONCERT_OP_BROADCAST:
      return nccl.ncclBroadcast(src, dst, args.count, type, static_cast<int>(args.root), rank.comm,
                                rank.stream);
    case CONCERT_OP_ALL_TO_ALL:
      if (nccl.ncclAlltoAll != nullptr) {
        return nccl.ncclAlltoAll(src, dst, args.count, type, rank.comm, rank.stream);
      }
      return SendReceive(nccl, args, ranks, rank);
    default:
      return ncclInvalidArgument;
  }
}

absl::Status LaunchNccl(CollectiveContext& context, std::span<const Op* const> parts) {
  const Nccl& nccl = *context.api.nccl;
  if (ncclResult_t result = nccl.ncclGroupStart(); result != ncclSuccess) {
    return nccl.ToStatus(result, "ncclGroupStart");
  }
  ncclResult_t added = ncclSuccess;
  for (size_t rank = 0; rank < parts.size() && added == ncclSuccess; ++rank) {
    added = AddPart(nccl, *parts[rank], parts.size(), context.ranks[rank]);
  }
  const ncclResult_t ended = nccl.ncclGroupEnd();  // also closes a group that failed
  if (added != ncclSuccess) return nccl.ToStatus(added, "adding a part to a NCCL group");
  return nccl.ToStatus(ended, "ncclGroupEnd");
}

}  // namespace

absl::Status LaunchCollective(CollectiveContext& context, std::span<const Op* const> parts) {
  if (parts.front()->kind == CONCERT_OP_BARRIER) {
    // Nothing to compute: each rank's stream passes once every rank's has come here.
    absl::Status status = Join(context);
    if (status.ok()) status = Fork(context);
    return status;
  }
  return context.shared_gpu_kernels != nullptr ? LaunchLocal(context, parts)
                                               : LaunchNccl(context, parts);
}

}  // namespace concert::kernels::cuda
