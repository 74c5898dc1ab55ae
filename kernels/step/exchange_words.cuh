// What stages pass on as words that are their own flags (kNotThere): read past the L1 cache, and
// looked at until they are there.
#ifndef CONCERT_KERNELS_STEP_EXCHANGE_WORDS_CUH_
#define CONCERT_KERNELS_STEP_EXCHANGE_WORDS_CUH_

#include "kernels/step/patience.cuh"

namespace concert::kernels::cuda {

__device__ __forceinline__ uint4 LoadPack(Address from) {
  uint4 pack;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(pack.x), "=r"(pack.y), "=r"(pack.z), "=r"(pack.w)
               : "l"(from)
               : "memory");
  return pack;
}
__device__ __forceinline__ uint16_t LoadBits(Address base, uint64_t element) {
  uint16_t bits;
  asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];"
               : "=h"(bits)
               : "l"(base + 2 * element)
               : "memory");
  return bits;
}
// A word, or its lower half.
__device__ __forceinline__ void StoreWord(Address to, uint32_t value, bool whole) {
  if (whole) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
  } else {
    asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(to), "h"(static_cast<uint16_t>(value))
                 : "memory");
  }
}

// Whether a half of the word has all bits set: then a top bit of what comes out is set
// (kTopBits). A half of the inverse that is zero borrows into its top bit, which was not set before
// (Mycroft's test for zero bytes).
__device__ __forceinline__ uint32_t EmptyHalves(uint32_t word) { return (~word - 0x10001u) & word; }
constexpr uint32_t kTopBits = 0x80008000u;
__device__ __forceinline__ bool IsThere(const uint4& pack) {
  return ((EmptyHalves(pack.x) | EmptyHalves(pack.y) | EmptyHalves(pack.z) | EmptyHalves(pack.w)) &
          kTopBits) == 0;
}

__device__ __forceinline__ uint4 AwaitPack(const StepArgs& args, Address from) {
  Patience patience;
  uint4 pack = LoadPack(from);
  while (!IsThere(pack) && !patience.GivesUp(args)) pack = LoadPack(from);
  return pack;
}
__device__ __forceinline__ uint16_t AwaitBits(const StepArgs& args, Address base,
                                              uint64_t element) {
  Patience patience;
  uint16_t bits = LoadBits(base, element);
  while (bits == kNotThere && !patience.GivesUp(args)) bits = LoadBits(base, element);
  return bits;
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_EXCHANGE_WORDS_CUH_
