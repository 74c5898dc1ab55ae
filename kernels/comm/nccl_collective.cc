#include "absl/functional/function_ref.h"
#include "kernels/comm/transports.h"
#include "proto/ring/messages.h"

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

// Calls of this thread until `add` is over begin together.
ncclResult_t InGroup(const Nccl& nccl, absl::FunctionRef<ncclResult_t()> add) {
  if (ncclResult_t result = nccl.ncclGroupStart(); result != ncclSuccess) return result;
  const ncclResult_t added = add();
  const ncclResult_t ended = nccl.ncclGroupEnd();  // also closes a group that failed
  return added != ncclSuccess ? added : ended;
}

// All-to-all of NCCL before 2.28.
ncclResult_t SendReceive(const Nccl& nccl, const CollectiveArgs& args, size_t ranks,
                         const CollectiveRank& rank) {
  const uint64_t slot_bytes = args.count * DtypeBytes(args.dtype);
  const ncclDataType_t type = NcclType(args.dtype);
  return InGroup(nccl, [&] {
    for (size_t i = 0; i < ranks; ++i) {
      const auto* src = reinterpret_cast<const void*>(args.src + i * slot_bytes);
      auto* dst = reinterpret_cast<void*>(args.dst + i * slot_bytes);
      const int peer = static_cast<int>(i);
      ncclResult_t result = nccl.ncclSend(src, args.count, type, peer, rank.comm, rank.stream);
      if (result != ncclSuccess) return result;
      result = nccl.ncclRecv(dst, args.count, type, peer, rank.comm, rank.stream);
      if (result != ncclSuccess) return result;
    }
    return ncclSuccess;
  });
}

ncclResult_t LaunchPart(const Nccl& nccl, const Op& op, size_t ranks, const CollectiveRank& rank) {
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
  if (!context.connects) {
    return ForEachRank(context, [&](size_t i, const CollectiveRank& rank) {
      return nccl.ToStatus(LaunchPart(nccl, *parts[i], parts.size(), rank),
                           concert_op_kind_name(parts[i]->kind));
    });
  }
  const ncclResult_t result = InGroup(nccl, [&] {
    ncclResult_t added = ncclSuccess;
    for (size_t i = 0; i < parts.size() && added == ncclSuccess; ++i) {
      added = LaunchPart(nccl, *parts[i], parts.size(), context.ranks[i]);
    }
    return added;
  });
  return nccl.ToStatus(result, "a NCCL group that connects ranks");
}

}  // namespace concert::kernels::cuda
