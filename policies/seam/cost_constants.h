// The fitted constants of the cost model, as data, so that policies/training can fit them again.
#ifndef CONCERT_POLICIES_SEAM_COST_CONSTANTS_H_
#define CONCERT_POLICIES_SEAM_COST_CONSTANTS_H_

namespace concert::policies {

// The defaults were fitted together to the rows of tests/unit/policies/measured_groups.h;
// docs/adr/0003-roofline-and-waves.md has what else was measured. fill_us and store_us_per_element
// were fitted later, to the baselines of docs/benchmarks/gemm-h200.json one after the other.
struct CostConstants {
  // From a block's start to its first multiply, and from its last to its result in memory.
  double fill_us = 0.67;
  // Storing a tile of D at the end of each wave, which nothing hides.
  double store_us_per_element = 4.2e-5;
  // What one SM can draw from L2 and HBM.
  double sm_bytes_per_s = 117e9;
  // Share of DeviceModel::fp8_flops that large fp8 kernels reach which add in fp32 (kernels/gemm).
  double fp8_share = 0.87;
  // Share of hbm_bytes_per_s that a GEMM's operand streams reach: 3.7 of 4.2 TB/s.
  double hbm_efficiency = 0.88;
  // Reducing the two halves of a GEMM split along K; only long sums are worth it.
  double split_us = 2.2;
  // A kernel that fills the GPU is preferred to one with fewer blocks even if that takes longer, up
  // to this share: variants are chosen alone and hoard SMs.
  double hoarding = 0.485;
  // Rows or addresses that are no multiples of 16 bytes cannot use the tensor memory accelerator:
  // multiples of 2 bytes, and of 4.
  double unaligned_factor = 7, unaligned_words_factor = 4;
  // Between the starts of two launches on different lanes.
  double issue_us = 0.33;
  // Blocks of two GEMMs do not fit on one SM: the second's pipeline fills only after the first has
  // left.
  double handover_us = 0.81;
  // Waves of different GEMMs that alternate evict each other's tiles from L2; per wave beyond the
  // first. Fitted with handover_us to sets without a join between them (ADR 17, "Side by side").
  double wave_crowding = 0.002;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_COST_CONSTANTS_H_
