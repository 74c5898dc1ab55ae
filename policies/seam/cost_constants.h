// The fitted constants of the cost model, as data, so that policies/training can fit them again.
#ifndef CONCERT_POLICIES_SEAM_COST_CONSTANTS_H_
#define CONCERT_POLICIES_SEAM_COST_CONSTANTS_H_

namespace concert::policies {

// The defaults were fitted together to 32 measured groups (one H200, cuBLASLt 13.1, bf16, CUDA
// graphs): the rows of tests/unit/policies/measured_groups.h, e.g. eight 16x2048x1024
// take 35.7 us one after the other and 21.5 us on streams; four 4096x4096x4096 take 722 and 869 us.
// docs/adr/0003-roofline-and-waves.md. fill_us and store_us_per_element were fitted later, to the
// baselines of docs/benchmarks/gemm-h200.json one after the other.
struct CostConstants {
  // From a block's start to its first multiply, and from its last to its result in memory.
  double fill_us = 0.67;
  // Storing a tile of D at the end of each wave, which nothing hides. 4096x4096x512 takes 34.7 us
  // in four waves of 5.7 us of multiplying.
  double store_us_per_element = 4.2e-5;
  // What one SM can draw from L2 and HBM. A hand-written kernel measured 108e9.
  double sm_bytes_per_s = 117e9;
  // Share of DeviceModel::fp8_flops that fp8 kernels reach which add in fp32 (kernels/gemm), as
  // large ones show: 3595x4624x2224 takes 79 us instead of 70 (one H200).
  double fp8_share = 0.87;
  // Share of hbm_bytes_per_s that a GEMM's operand streams reach: 3.7 of 4.2 TB/s.
  double hbm_efficiency = 0.88;
  // Reducing the two halves of a GEMM split along K; only long sums are worth it.
  double split_us = 2.2;
  // A kernel that fills the GPU is preferred to one with fewer blocks even if that takes longer, up
  // to this share: variants are chosen alone and hoard SMs.
  double hoarding = 0.485;
  // Rows or addresses that are no multiples of 16 bytes cannot use the tensor memory accelerator.
  // 1583x1059x1011 takes 46 us instead of 7, 4347x2341x2821 509 instead of 80 (rows of a multiple
  // of 2 bytes); four GEMMs of 1111 to 5889x1502x2286 554 us instead of 139 (4 bytes).
  double unaligned_factor = 7, unaligned_words_factor = 4;
  // Between the starts of two launches on different lanes (eight LoRA GEMMs of 6.9 us: 10.4 us on
  // streams).
  double issue_us = 0.33;
  // Blocks of two GEMMs do not fit on one SM: the second's pipeline fills only after the first has
  // left.
  double handover_us = 0.81;
  // Waves of different GEMMs that alternate evict each other's tiles from L2; per wave beyond the
  // first. Fitted with handover_us to 37 sets of large GEMMs (policies/training/data/
  // h200_large.jsonl) and the baselines of docs/benchmarks/gemm-untuned-h200.json: side by side,
  // without a join between sets, large GEMMs take 0.98 to 0.76 of the time one after the other.
  // With a join after each four, as first measured, four 4096x4096x4096 took 1.2 times as long.
  double wave_crowding = 0.002;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_COST_CONSTANTS_H_
