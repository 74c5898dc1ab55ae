// Hopper's asynchronous warpgroup MMA, D[64, N] += A[64, k] * B[N, k]^T with both operands in
// shared memory and D in registers (PTX ISA, "wgmma.mma_async"). k is 32 bytes of each row.
#ifndef CONCERT_KERNELS_GROUP_WGMMA_CUH_
#define CONCERT_KERNELS_GROUP_WGMMA_CUH_

#include <cstdint>

namespace concert::kernels::cuda {

// Formats of the operands; Input is as wide as one element.
struct Bf16 {
  using Input = uint16_t;
};
struct Fp16 {
  using Input = uint16_t;
};
struct E4m3 {
  using Input = uint8_t;
};

// Multiplies the operands that the descriptors name; `accumulate` 0 starts a new sum.
template <class Format, int kN>
struct Wgmma;

// "%0" to "%127" in eights.
#define CONCERT_R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define CONCERT_R1 CONCERT_R0 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define CONCERT_R2 CONCERT_R1 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define CONCERT_R3 CONCERT_R2 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define CONCERT_R4 CONCERT_R3 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define CONCERT_R5 CONCERT_R4 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define CONCERT_R6 CONCERT_R5 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define CONCERT_R7 CONCERT_R6 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define CONCERT_R8 CONCERT_R7 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define CONCERT_R9 CONCERT_R8 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define CONCERT_R10 CONCERT_R9 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define CONCERT_R11 CONCERT_R10 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define CONCERT_R12 CONCERT_R11 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define CONCERT_R13 CONCERT_R12 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define CONCERT_R14 CONCERT_R13 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define CONCERT_R15 CONCERT_R14 ",%120,%121,%122,%123,%124,%125,%126,%127"

// d[i] to d[i + 7] as operands, and up to the end in eights.
#define CONCERT_F8(i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define CONCERT_F16(i) CONCERT_F8(i), CONCERT_F8(i + 8)
#define CONCERT_F32(i) CONCERT_F16(i), CONCERT_F16(i + 16)
#define CONCERT_F48(i) CONCERT_F32(i), CONCERT_F16(i + 32)
#define CONCERT_F64(i) CONCERT_F32(i), CONCERT_F32(i + 32)
#define CONCERT_F96(i) CONCERT_F64(i), CONCERT_F32(i + 64)
#define CONCERT_F128(i) CONCERT_F64(i), CONCERT_F64(i + 64)

// `a`, `b` and `p` are the numbers of the three operands after the registers. `trailer`: for 16-bit
// formats, that neither operand is transposed.
#define CONCERT_WGMMA(format, n, k, types, trailer, registers, operands, a, b, p)             \
  template <>                                                                                 \
  struct Wgmma<format, n> {                                                                   \
    __device__ __forceinline__ static void Run(float (&d)[n / 2], uint64_t a_descriptor,      \
                                               uint64_t b_descriptor, int accumulate) {       \
      asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #p                  \
                   ", 0;\n"                                                                   \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k" #k ".f32." types " {" registers \
                   "}, %" #a ", %" #b ", accumulate, 1, 1" trailer ";\n}"                     \
                   : operands(0)                                                              \
                   : "l"(a_descriptor), "l"(b_descriptor), "r"(accumulate));                  \
    }                                                                                         \
  };

#define CONCERT_WGMMA_FORMAT(format, k, types, trailer)                               \
  CONCERT_WGMMA(format, 16, k, types, trailer, CONCERT_R0, CONCERT_F8, 8, 9, 10)      \
  CONCERT_WGMMA(format, 32, k, types, trailer, CONCERT_R1, CONCERT_F16, 16, 17, 18)   \
  CONCERT_WGMMA(format, 64, k, types, trailer, CONCERT_R3, CONCERT_F32, 32, 33, 34)   \
  CONCERT_WGMMA(format, 96, k, types, trailer, CONCERT_R5, CONCERT_F48, 48, 49, 50)   \
  CONCERT_WGMMA(format, 128, k, types, trailer, CONCERT_R7, CONCERT_F64, 64, 65, 66)  \
  CONCERT_WGMMA(format, 192, k, types, trailer, CONCERT_R11, CONCERT_F96, 96, 97, 98) \
  CONCERT_WGMMA(format, 256, k, types, trailer, CONCERT_R15, CONCERT_F128, 128, 129, 130)

CONCERT_WGMMA_FORMAT(Bf16, 16, "bf16.bf16", ", 0, 0")
CONCERT_WGMMA_FORMAT(Fp16, 16, "f16.f16", ", 0, 0")
CONCERT_WGMMA_FORMAT(E4m3, 32, "e4m3.e4m3", "")

#undef CONCERT_WGMMA_FORMAT
#undef CONCERT_WGMMA

// Of 128-byte rows with 128-byte swizzle, in groups of 8 rows 1024 bytes apart (PTX ISA, "matrix
// descriptor"). Adding 2 moves on by 32 bytes of K.
__device__ __forceinline__ uint64_t OperandDescriptor(uint32_t shared_address) {
  constexpr uint64_t kRowGroupStride = 1024 / 16, kSwizzle128 = 1;
  return uint64_t{(shared_address & 0x3FFFF) >> 4} | uint64_t{1} << 16 | kRowGroupStride << 32 |
         kSwizzle128 << 62;
}

// Orders the warpgroup's accesses to registers and shared memory before its next wgmma.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_WGMMA_CUH_
