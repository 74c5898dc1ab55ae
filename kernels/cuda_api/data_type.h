// CUDA's name of a dtype, as cuBLASLt takes it.
#ifndef CONCERT_KERNELS_CUDA_API_DATA_TYPE_H_
#define CONCERT_KERNELS_CUDA_API_DATA_TYPE_H_

#include <library_types.h>

#include "policies/seam/work.h"

namespace concert::kernels::cuda {

constexpr cudaDataType_t DataTypeOf(policies::Dtype dtype) {
  switch (dtype) {
    case policies::Dtype::kBf16:
      return CUDA_R_16BF;
    case policies::Dtype::kFp16:
      return CUDA_R_16F;
    case policies::Dtype::kFp32:
      return CUDA_R_32F;
    case policies::Dtype::kFp8E4m3:
      return CUDA_R_8F_E4M3;
  }
  return CUDA_R_32F;
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_DATA_TYPE_H_
