// Matrices of bf16 between shared memory and the tensor cores: one function per instruction.
#ifndef CONCERT_KERNELS_CUDA_API_MATRICES_CUH_
#define CONCERT_KERNELS_CUDA_API_MATRICES_CUH_

#include <cstdint>

namespace concert::kernels::cuda {

// A row of a matrix.
__device__ __forceinline__ void StoreShared(uint32_t address, const uint4& unit) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(unit.x), "r"(unit.y),
               "r"(unit.z), "r"(unit.w)
               : "memory");
}

__device__ __forceinline__ uint4 LoadShared(uint32_t address) {
  uint4 unit;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(unit.x), "=r"(unit.y), "=r"(unit.z), "=r"(unit.w)
               : "r"(address)
               : "memory");
  return unit;
}

// Four matrices of 8 x 8: lanes 8 * m to 8 * m + 7 name the rows of matrix m, 16 bytes each, and
// lane l gets elements 2 * (l % 4) and the next of row l / 4 of each. Together they are a left
// operand of 16 x 16 whose upper half are matrices 0 and 2.
__device__ __forceinline__ void LoadMatrices(uint32_t row, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
// The same of columns instead of rows.
__device__ __forceinline__ void LoadTransposed(uint32_t row, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
// Of one matrix in registers.
__device__ __forceinline__ uint32_t Transposed(uint32_t matrix) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
}
// d += a * b^T, 16 x 16 times 8 x 16. Lane l has columns 2 * (l % 4) and the next of rows l / 4 and
// l / 4 + 8 of d.
__device__ __forceinline__ void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], uint32_t b_low,
                                            uint32_t b_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_MATRICES_CUH_
