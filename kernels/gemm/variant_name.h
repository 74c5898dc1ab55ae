// Variants in words.
#ifndef CONCERT_KERNELS_GEMM_VARIANT_NAME_H_
#define CONCERT_KERNELS_GEMM_VARIANT_NAME_H_

#include <string>

#include "policies/seam/variant.h"

namespace concert::kernels {

// For people: "cublaslt 66 tile 128x256x64 cluster 2x1 stages 4 split 1 of 66 SMs". Tile and
// cluster count rows of A (m) before rows of W (n), as problems do. What is not known is left out;
// "default" is no variant at all.
std::string VariantName(const policies::Variant& variant);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GEMM_VARIANT_NAME_H_
