#include "kernels/gemm/variant_name.h"

#include <gtest/gtest.h>

namespace concert::kernels {
namespace {

using policies::Variant;

Variant Hopper() {
  Variant variant;
  variant.source = Variant::Source::kCublasLt;
  variant.sm_budget = 66;
  variant.tile_m = 128, variant.tile_n = 256, variant.tile_k = 64;
  variant.cluster_m = 2, variant.cluster_n = 1;
  variant.stages = 4, variant.split_k = 1;
  variant.algo_id = 66, variant.tile_id = 24, variant.stages_id = 16, variant.cluster_id = 5;
  return variant;
}

TEST(VariantName, SaysWhatTheVariantIs) {
  EXPECT_EQ(VariantName(Hopper()),
            "cublaslt 66 tile 128x256x64 cluster 2x1 stages 4 split 1 of 66 SMs");
}

TEST(VariantName, NamesWhatIsUnusualAndLeavesOutWhatIsUnknown) {
  Variant variant = Hopper();
  variant.sm_budget = 0;
  variant.stages = 0, variant.tile_k = 0;
  variant.split_k = 4, variant.reduction = 2;
  variant.swizzle = 1, variant.inner_id = 3, variant.custom = 7;
  EXPECT_EQ(VariantName(variant),
            "cublaslt 66 tile 128x256 cluster 2x1 split 4 reduction 2 swizzle 1 inner 3 custom 7 "
            "of all SMs");
}

// Two variants that differ must not read alike, even where the ids mean nothing to us.
TEST(VariantName, FallsBackToIds) {
  Variant variant;
  variant.source = Variant::Source::kCublasLt;
  variant.algo_id = 70, variant.tile_id = 999, variant.cluster_id = 77;
  EXPECT_EQ(VariantName(variant), "cublaslt 70 tile id 999 cluster id 77 of all SMs");
}

TEST(VariantName, NamesOtherSources) {
  EXPECT_EQ(VariantName({}), "default");
  Variant variant;
  variant.source = Variant::Source::kGroup;
  variant.tile_m = 64, variant.tile_n = 128, variant.sm_budget = 124;
  EXPECT_EQ(VariantName(variant), "group tile 64x128 of 124 SMs");
}

}  // namespace
}  // namespace concert::kernels
