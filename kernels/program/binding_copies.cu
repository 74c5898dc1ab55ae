// All bindings of a launch, copied by one kernel: a copy each by the driver takes 2 us, one after
// the other.
#include "kernels/group/async.cuh"
#include "kernels/program/binding_copy_args.h"

namespace concert::kernels::cuda {
namespace {

template <typename Word>
__device__ void Copy(const Transfer& copy, uint64_t first, uint64_t step) {
  auto* to = reinterpret_cast<Word*>(copy.to);
  const auto* from = reinterpret_cast<const Word*>(copy.from);
  const uint64_t words = copy.bytes / sizeof(Word);
  constexpr int kAtOnce = 4;  // on their way: a prompt's rows are megabytes
  for (uint64_t i = first; i < words; i += kAtOnce * step) {
    Word word[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (i + j * step < words) word[j] = from[i + j * step];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (i + j * step < words) to[i + j * step] = word[j];
  }
}

}  // namespace

extern "C" __global__ void concert_copy_bindings(const __grid_constant__ BindingCopyArgs args) {
  ReleaseNextLaunch();
  WaitForPreviousLaunch();
  if (args.there != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *args.there = args.members;
  if (args.count == 0) return;
  const Transfer& copy = args.copies[blockIdx.x / args.blocks_each];
  const uint64_t first = uint64_t{blockIdx.x % args.blocks_each} * blockDim.x + threadIdx.x;
  const uint64_t step = uint64_t{args.blocks_each} * blockDim.x;
  if ((copy.to | copy.from | copy.bytes) % sizeof(uint4) == 0) {
    Copy<uint4>(copy, first, step);
  } else {
    Copy<uint8_t>(copy, first, step);
  }
}

}  // namespace concert::kernels::cuda
