// What cuBLASLt's epilogues lack: silu, bias at any address, every combination that it refuses, and
// ends that it does not know.
//
// In place: the GEMM before it has rounded D to the dtype already, so that D is rounded twice. The
// second rounding adds at most half a unit in the last place (2^-9 relative in bf16) to the first
// one's; keeping fp32 in between would cost twice the traffic and a second buffer.
// From sums in fp32: where more than an activation ends the GEMM. Then D is rounded once, and C may
// be D.
#include "kernels/activation.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/gemm_kernel_args.h"

namespace concert::kernels::cuda {
namespace {

// One thread per pack of kWidth neighbouring columns. REQUIRES: kWidth divides n, ldd and stride_d,
// and d and bias are aligned to a pack.
template <typename T, int kWidth>
__device__ void Epilogue(const EpilogueArgs& args) {
  const uint64_t packs_per_row = args.n / kWidth;
  const uint64_t packs = packs_per_row * args.m * args.batch;
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += step) {
    const uint64_t row = i / packs_per_row;
    const uint64_t column = (i - row * packs_per_row) * kWidth;
    const uint64_t member = row / args.m;
    const uint64_t offset = member * args.stride_d + (row - member * args.m) * args.ldd + column;
    auto* d = reinterpret_cast<Pack<T, kWidth>*>(static_cast<T*>(args.d) + offset);
    Pack<T, kWidth> values = *d;
    Pack<T, kWidth> bias{};
    const bool has_bias = args.bias != nullptr;
    if (has_bias)
      bias = *reinterpret_cast<const Pack<T, kWidth>*>(static_cast<const T*>(args.bias) + column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float x = ToFloat(values.values[j]) + (has_bias ? ToFloat(bias.values[j]) : 0.0f);
      values.values[j] = FromFloat<T>(Activate(x, args.activation));
    }
    *d = values;
  }
}

// One thread per element of D.
template <typename T>
__device__ void EpilogueOfSums(const SumsArgs& args) {
  const GemmEpilogue<T> epilogue(args.gemm, 0);
  const uint64_t columns = args.gemm.gated ? args.gemm.n / 2 : args.gemm.n;
  const uint64_t elements = columns * args.gemm.m;
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += step) {
    const uint64_t row = i / columns, column = i - row * columns;
    const float* const sums = args.sums + row * args.gemm.n;
    const auto before = [&](uint64_t at) { return epilogue.Before(sums[at], row, at); };
    if (args.gemm.gated) {
      epilogue.StoreGated(before(epilogue.GateOf(column)), before(epilogue.UpOf(column)), row,
                          column);
    } else {
      epilogue.Store(before(column), row, column);
    }
  }
}

}  // namespace

#define CONCERT_EPILOGUE(name, T, width)                                                         \
  extern "C" __global__ void __launch_bounds__(kEpilogueThreads) name(const EpilogueArgs args) { \
    Epilogue<T, width>(args);                                                                    \
  }
CONCERT_EPILOGUE(epilogue_bf16_scalar, __nv_bfloat16, 1)
CONCERT_EPILOGUE(epilogue_bf16_vector, __nv_bfloat16, 8)
CONCERT_EPILOGUE(epilogue_fp16_scalar, __half, 1)
CONCERT_EPILOGUE(epilogue_fp16_vector, __half, 8)
CONCERT_EPILOGUE(epilogue_fp32_scalar, float, 1)
CONCERT_EPILOGUE(epilogue_fp32_vector, float, 4)

#define CONCERT_EPILOGUE_OF_SUMS(name, T)                                                    \
  extern "C" __global__ void __launch_bounds__(kEpilogueThreads) name(const SumsArgs args) { \
    EpilogueOfSums<T>(args);                                                                 \
  }
CONCERT_EPILOGUE_OF_SUMS(epilogue_of_sums_bf16, __nv_bfloat16)
CONCERT_EPILOGUE_OF_SUMS(epilogue_of_sums_fp16, __half)
CONCERT_EPILOGUE_OF_SUMS(epilogue_of_sums_fp32, float)

}  // namespace concert::kernels::cuda
