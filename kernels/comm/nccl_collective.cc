#include "kernels/comm/transports.h"

namespace concert::kernels::cuda {
namespace {

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

}  // namespace

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

}  // namespace concert::kernels::cuda
