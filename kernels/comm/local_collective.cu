// Collectives among ranks whose memory all lies on one GPU (several clients of a single GPU, where
// NCCL refuses to work): one kernel reads every rank's source and writes every rank's destination.
//
// In place: each thread reads all that it needs of an element's group before it writes any of it,
// and no other thread reads what it writes. So every kernel is right for src == dst, and for NCCL's
// in-place slots of all_gather and reduce_scatter. Reductions run in rank order, in fp32, rounded
// once: every rank gets the same bits, run after run.
#include "kernels/comm/local_collective_args.h"
#include "kernels/comm/reduction.cuh"
#include "kernels/cuda_api/element.cuh"

namespace concert::kernels::cuda {
namespace {

__device__ uint64_t FirstIndex() { return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ uint64_t IndexStep() { return uint64_t{gridDim.x} * blockDim.x; }

// The pack at `index` of every rank's source, combined.
template <typename T, int kWidth>
__device__ Pack<T, kWidth> ReducePack(const LocalCollectiveArgs& args, uint64_t index) {
  float sums[kWidth];
  for (uint32_t rank = 0; rank < args.ranks; ++rank) {
    const Pack<T, kWidth> part = static_cast<const Pack<T, kWidth>*>(args.src[rank])[index];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float x = ToFloat(part.values[j]);
      sums[j] = rank == 0 ? x : Combine(sums[j], x, args.reduction);
    }
  }
  Pack<T, kWidth> result;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) result.values[j] = FromFloat<T>(sums[j]);
  return result;
}

template <typename T, int kWidth>
__device__ void AllReduce(const LocalCollectiveArgs& args) {
  for (uint64_t i = FirstIndex(); i < args.count; i += IndexStep()) {
    const Pack<T, kWidth> result = ReducePack<T, kWidth>(args, i);
    for (uint32_t rank = 0; rank < args.ranks; ++rank) {
      static_cast<Pack<T, kWidth>*>(args.dst[rank])[i] = result;
    }
  }
}

template <typename T, int kWidth>
__device__ void ReduceScatter(const LocalCollectiveArgs& args) {
  for (uint64_t i = FirstIndex(); i < args.count * args.ranks; i += IndexStep()) {
    const uint64_t rank = i / args.count;
    const Pack<T, kWidth> result = ReducePack<T, kWidth>(args, i);
    static_cast<Pack<T, kWidth>*>(args.dst[rank])[i - rank * args.count] = result;
  }
}

// Word is any type of the right size: these only move bytes.
template <typename Word>
__device__ void AllGather(const LocalCollectiveArgs& args) {
  for (uint64_t i = FirstIndex(); i < args.count * args.ranks; i += IndexStep()) {
    const uint64_t from = i / args.count;
    const Word word = static_cast<const Word*>(args.src[from])[i - from * args.count];
    for (uint32_t rank = 0; rank < args.ranks; ++rank) static_cast<Word*>(args.dst[rank])[i] = word;
  }
}

// Ranks a and b exchange their slots for each other in one thread, so that in-place exchange is
// safe too.
template <typename Word>
__device__ void AllToAll(const LocalCollectiveArgs& args) {
  const uint64_t pairs = uint64_t{args.ranks} * args.ranks;
  for (uint64_t i = FirstIndex(); i < args.count * pairs; i += IndexStep()) {
    const uint64_t pair = i / args.count;
    const uint64_t a = pair / args.ranks;
    const uint64_t b = pair % args.ranks;
    if (a > b) continue;
    const uint64_t slot_a = a * args.count + (i - pair * args.count);
    const uint64_t slot_b = b * args.count + (i - pair * args.count);
    const Word from_a = static_cast<const Word*>(args.src[a])[slot_b];
    const Word from_b = static_cast<const Word*>(args.src[b])[slot_a];
    static_cast<Word*>(args.dst[b])[slot_a] = from_a;
    static_cast<Word*>(args.dst[a])[slot_b] = from_b;
  }
}

template <typename Word>
__device__ void Broadcast(const LocalCollectiveArgs& args) {
  for (uint64_t i = FirstIndex(); i < args.count; i += IndexStep()) {
    const Word word = static_cast<const Word*>(args.src[args.root])[i];
    for (uint32_t rank = 0; rank < args.ranks; ++rank) static_cast<Word*>(args.dst[rank])[i] = word;
  }
}

}  // namespace

#define CONCERT_KERNEL(name, function)                                  \
  extern "C" __global__ void __launch_bounds__(kLocalCollectiveThreads) \
      name(const __grid_constant__ LocalCollectiveArgs args) {          \
    function(args);                                                     \
  }
#define CONCERT_REDUCTIONS(dtype, T, width)                              \
  CONCERT_KERNEL(all_reduce_##dtype##_scalar, (AllReduce<T, 1>))         \
  CONCERT_KERNEL(all_reduce_##dtype##_vector, (AllReduce<T, width>))     \
  CONCERT_KERNEL(reduce_scatter_##dtype##_scalar, (ReduceScatter<T, 1>)) \
  CONCERT_KERNEL(reduce_scatter_##dtype##_vector, (ReduceScatter<T, width>))
CONCERT_REDUCTIONS(bf16, __nv_bfloat16, 8)
CONCERT_REDUCTIONS(fp16, __half, 8)
CONCERT_REDUCTIONS(fp32, float, 4)

#define CONCERT_MOVES(bytes, Word)                    \
  CONCERT_KERNEL(all_gather_##bytes, AllGather<Word>) \
  CONCERT_KERNEL(all_to_all_##bytes, AllToAll<Word>)  \
  CONCERT_KERNEL(broadcast_##bytes, Broadcast<Word>)
CONCERT_MOVES(2, uint16_t)
CONCERT_MOVES(4, uint32_t)
CONCERT_MOVES(16, uint4)

}  // namespace concert::kernels::cuda
