// Tiles whose sums along K are cut into parts that different blocks compute: how the parts meet.
#ifndef CONCERT_KERNELS_GROUP_SPLIT_CUH_
#define CONCERT_KERNELS_GROUP_SPLIT_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/group/async.cuh"
#include "kernels/group/block.cuh"
#include "kernels/group/group_args.h"

namespace concert::kernels::cuda {

// Counts a part that all threads of the warpgroup have written. True in the warpgroup that came
// last; the other parts are then visible to all of its threads.
__device__ __forceinline__ bool IsLastPart(const GroupArgs& args, const Shared& shared,
                                           const Item& item, int warpgroup, int thread) {
  // The barrier puts every thread's part before the count, which releases them all and acquires the
  // other warpgroups' for the threads past the next barrier. One fence instead of 128.
  SyncWarpgroup(warpgroup);
  if (thread == 0) {
    uint32_t* summed = &args.own().summed[item.split_tile() * 2 + warpgroup];
    const bool last = AddAcquireRelease(summed, 1) == static_cast<uint32_t>(item.splits() - 1);
    if (last) *summed = 0;
    shared.tail->is_last[warpgroup] = last;
  }
  SyncWarpgroup(warpgroup);
  return *static_cast<volatile int*>(&shared.tail->is_last[warpgroup]) != 0;
}

// Adds the parts of a split tile, in their order, so that the same bits come out every time, unless
// args.sums_as_they_come. True in the warpgroup that came last, which then has the whole sum in
// `d`.
template <class Config, int kN>
__device__ __forceinline__ bool SumParts(const GroupArgs& args, const Shared& shared,
                                         const Item& item, float (&d)[kN / 2], int warpgroup,
                                         int thread) {
  constexpr int kQuads = kN / 8;
  const size_t part = static_cast<size_t>(item.split_tile()) * args.max_splits;
  const auto part_of = [&](int split) {
    float* floats = args.partials + (part + split) * args.partial_floats;
    return reinterpret_cast<float4*>(floats) + warpgroup * kQuads * kWarpgroup + thread;
  };
  float4* mine = part_of(args.sums_as_they_come ? 0 : item.split());
  const auto quad = [&](int i) {
    return make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
  };
  if (args.sums_as_they_come) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) AddVector(mine + i * kWarpgroup, quad(i));
  } else {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) __stcg(mine + i * kWarpgroup, quad(i));
  }
  if (!IsLastPart(args, shared, item, warpgroup, thread)) return false;
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) d[i] = 0;
  const int sums = args.sums_as_they_come ? 1 : item.splits();
  const auto add = [&](const float4(&v)[kQuads]) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      d[4 * i] += v[i].x, d[4 * i + 1] += v[i].y, d[4 * i + 2] += v[i].z, d[4 * i + 3] += v[i].w;
    }
  };
  const auto read = [&](int split, float4(&v)[kQuads]) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) v[i] = __ldcg(part_of(split) + i * kWarpgroup);
  };
  // Several parts take hardly longer to read than one; a third of the registers is free for them.
  constexpr int kFit = Config::kComputingRegisters / 3 / (4 * kQuads);
  constexpr int kAtATime = kFit < 1 ? 1 : kFit > 4 ? 4 : kFit;
  int split = 0;
  if constexpr (kAtATime > 1) {
#pragma unroll 1
    for (; split + kAtATime <= sums; split += kAtATime) {
      float4 parts[kAtATime][kQuads];
#pragma unroll
      for (int p = 0; p < kAtATime; ++p) read(split + p, parts[p]);
#pragma unroll
      for (int p = 0; p < kAtATime; ++p) add(parts[p]);
    }
  }
#pragma unroll 1
  for (; split < sums; ++split) {
    float4 part[kQuads];
    read(split, part);
    add(part);
  }
  if (args.sums_as_they_come) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) __stcg(mine + i * kWarpgroup, make_float4(0, 0, 0, 0));
  }
  return true;
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_SPLIT_CUH_
