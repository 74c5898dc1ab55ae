// The reference collectives.
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/comm/collective_op.h"

namespace concert::kernels {
namespace {

using Parts = std::span<const Op* const>;

// Elements reduced at a time: all ranks' sources of a chunk are read before any destination of it
// is written, which is what makes in-place reductions right.
constexpr uint64_t kChunk = 4096;
using Chunk = std::array<float, kChunk>;

float Reduce(Reduction reduction, float a, float b) {
  switch (reduction) {
    case Reduction::kSum:
      return a + b;
    case Reduction::kMax:
      return std::fmax(a, b);
    case Reduction::kMin:
      return std::fmin(a, b);
  }
  return a;
}

// sums[0, size) = reduction over ranks, in rank order, of src[first, first + size).
template <typename T>
void ReduceChunk(Parts parts, uint64_t first, uint64_t size, Chunk& sums) {
  const Reduction reduction = parts[0]->collective.reduction;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const T* src = reinterpret_cast<const T*>(parts[rank]->collective.src) + first;
    for (uint64_t i = 0; i < size; ++i) {
      const float x = static_cast<float>(src[i]);
      sums[i] = rank == 0 ? x : Reduce(reduction, sums[i], x);
    }
  }
}

template <typename T>
void StoreChunk(const Chunk& sums, uint64_t size, Address dst, uint64_t first) {
  T* out = reinterpret_cast<T*>(dst) + first;
  for (uint64_t i = 0; i < size; ++i) out[i] = static_cast<T>(sums[i]);
}

template <typename T>
void AllReduce(Parts parts) {
  const uint64_t count = parts[0]->collective.count;
  Chunk sums;
  for (uint64_t first = 0; first < count; first += kChunk) {
    const uint64_t size = std::min(kChunk, count - first);
    ReduceChunk<T>(parts, first, size, sums);
    for (const Op* part : parts) StoreChunk<T>(sums, size, part->collective.dst, first);
  }
}

template <typename T>
void ReduceScatter(Parts parts) {
  const uint64_t count = parts[0]->collective.count;
  Chunk sums;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    for (uint64_t first = 0; first < count; first += kChunk) {
      const uint64_t size = std::min(kChunk, count - first);
      ReduceChunk<T>(parts, rank * count + first, size, sums);
      StoreChunk<T>(sums, size, parts[rank]->collective.dst, first);
    }
  }
}

// Moves bytes; memmove because an in-place source may be its own destination.
void MoveSlot(Address dst, uint64_t dst_slot, Address src, uint64_t src_slot, uint64_t slot_bytes) {
  std::memmove(reinterpret_cast<void*>(dst + dst_slot * slot_bytes),
               reinterpret_cast<const void*>(src + src_slot * slot_bytes), slot_bytes);
}

void AllGather(Parts parts, uint64_t slot_bytes) {
  for (size_t from = 0; from < parts.size(); ++from) {
    for (const Op* to : parts) {
      MoveSlot(to->collective.dst, from, parts[from]->collective.src, 0, slot_bytes);
    }
  }
}

void AllToAll(Parts parts, uint64_t slot_bytes) {
  for (size_t from = 0; from < parts.size(); ++from) {
    for (size_t to = 0; to < parts.size(); ++to) {
      MoveSlot(parts[to]->collective.dst, from, parts[from]->collective.src, to, slot_bytes);
    }
  }
}

void Broadcast(Parts parts, uint64_t slot_bytes) {
  const CollectiveArgs& root = parts[parts[0]->collective.root]->collective;
  for (const Op* to : parts) MoveSlot(to->collective.dst, 0, root.src, 0, slot_bytes);
}

template <typename T>
void ComputeAs(Parts parts) {
  const uint64_t slot_bytes = parts[0]->collective.count * sizeof(T);
  switch (parts[0]->kind) {
    case CONCERT_OP_ALL_REDUCE:
      return AllReduce<T>(parts);
    case CONCERT_OP_REDUCE_SCATTER:
      return ReduceScatter<T>(parts);
    case CONCERT_OP_ALL_GATHER:
      return AllGather(parts, slot_bytes);
    case CONCERT_OP_ALL_TO_ALL:
      return AllToAll(parts, slot_bytes);
    case CONCERT_OP_BROADCAST:
      return Broadcast(parts, slot_bytes);
    default:
      return;  // a barrier moves nothing
  }
}

}  // namespace

void ComputeCollective(Parts parts) {
  switch (parts[0]->collective.dtype) {
    case Dtype::kBf16:
      return ComputeAs<Eigen::bfloat16>(parts);
    case Dtype::kFp16:
      return ComputeAs<Eigen::half>(parts);
    case Dtype::kFp32:
      return ComputeAs<float>(parts);
    case Dtype::kFp8E4m3:
      return;  // admission lets none through
  }
}

}  // namespace concert::kernels
