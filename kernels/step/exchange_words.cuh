// What stages pass on as words that are their own flags (kNotThere): read past the L1 cache, and
// looked at until they are there.
#ifndef CONCERT_KERNELS_STEP_EXCHANGE_WORDS_CUH_
#define CONCERT_KERNELS_STEP_EXCHANGE_WORDS_CUH_

#include "kernels/step/patience.cuh"

namespace concert::kernels::cuda {

// None of these orders other accesses: what they bring tells by itself whether it is there.
__device__ __forceinline__ uint4 LoadPack(Address from) {
  uint4 pack;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(pack.x), "=r"(pack.y), "=r"(pack.z), "=r"(pack.w)
               : "l"(from));
  return pack;
}
__device__ __forceinline__ uint32_t LoadWord(Address from) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}
__device__ __forceinline__ uint16_t LoadBits(Address from) {
  uint16_t bits;
  asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(bits) : "l"(from));
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

// Whether a half of the word has all bits set: then a top bit of (~word - 1) & word is set, half by
// half. A half of the inverse that is zero borrows into its top bit, which was not set before
// (Mycroft's test for zero bytes).
__device__ __forceinline__ bool IsEmpty(uint32_t word) {
  return ((~word - 0x10001u) & word & 0x80008000u) != 0;
}
// The larger of each half: a half of it has all bits set if one of the pack has.
__device__ __forceinline__ uint32_t MostOf(const uint4& pack) {
  return __vmaxu2(__vmaxu2(pack.x, pack.y), __vmaxu2(pack.z, pack.w));
}
__device__ __forceinline__ bool IsThere(const uint4& pack) { return !IsEmpty(MostOf(pack)); }

__device__ __forceinline__ uint4 AwaitPack(Address from) {
  Patience patience;
  uint4 pack = LoadPack(from);
  while (!IsThere(pack) && !patience.GivesUp()) pack = LoadPack(from);
  return pack;
}
__device__ __forceinline__ uint32_t AwaitWord(Address from) {
  Patience patience;
  uint32_t word = LoadWord(from);
  while (IsEmpty(word) && !patience.GivesUp()) word = LoadWord(from);
  return word;
}

// A number with a tag beside it, which tells whether it is there.
struct Tagged {
  uint32_t tag;
  float value;
};
__device__ __forceinline__ void StoreTagged(uint64_t* to, float value, uint32_t tag) {
  const uint64_t word = uint64_t{__float_as_uint(value)} << 32 | tag;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ Tagged LoadTagged(const uint64_t* from) {
  uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from));
  return {static_cast<uint32_t>(word), __uint_as_float(static_cast<uint32_t>(word >> 32))};
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_EXCHANGE_WORDS_CUH_
