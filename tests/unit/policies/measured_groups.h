// Groups of GEMMs measured on an H200 (cuBLASLt 13.1, bf16, fp32 accumulation, weights out of L2,
// CUDA graphs, medians): all of a group one after the other on one stream, and each on a stream of
// its own. Five that fill several waves are of docs/benchmarks/gemm-untuned-h200.json, where sets
// follow each other without a join, as in a steady state; with a join after each set four
// 4096x4096x4096 took 869 us on streams.
#ifndef CONCERT_TESTS_UNIT_POLICIES_MEASURED_GROUPS_H_
#define CONCERT_TESTS_UNIT_POLICIES_MEASURED_GROUPS_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace concert::policies {

struct MeasuredGemm {
  uint32_t m, n, k;
  int count;
};

struct MeasuredGroup {
  std::string_view name;
  std::vector<MeasuredGemm> gemms;
  double serial_us;
  double streams_us;
};

// Equal shapes appear twice where they were measured on two days.
inline const std::vector<MeasuredGroup>& MeasuredGroups() {
  static const std::vector<MeasuredGroup> groups = {
      {"equal-16x2048x1024-x8", {{16, 2048, 1024, 8}}, 35.7, 21.5},
      {"equal-64x1536x4096-x8", {{64, 1536, 4096, 8}}, 70.2, 46.9},
      {"equal-64x4096x4096-x8", {{64, 4096, 4096, 8}}, 92.3, 80.2},
      {"equal-256x4096x4096-x8", {{256, 4096, 4096, 8}}, 142.4, 132.9},
      {"equal-512x768x768-x8", {{512, 768, 768, 8}}, 36.4, 26.3},
      {"equal-512x768x3072-x8", {{512, 768, 3072, 8}}, 63.7, 52.6},
      {"equal-1024x1024x1024-x8", {{1024, 1024, 1024, 8}}, 47.3, 47.1},
      {"equal-2048x1024x1024-x8", {{2048, 1024, 1024, 8}}, 69.1, 62.5},
      {"equal-2048x2048x2048-x8", {{2048, 2048, 2048, 8}}, 227.2, 207.1},
      {"equal-4096x4096x4096-x4", {{4096, 4096, 4096, 4}}, 823.1, 799.1},
      {"equal-16x2048x1024-x8", {{16, 2048, 1024, 8}}, 35.8, 21.6},
      {"equal-64x1536x4096-x8", {{64, 1536, 4096, 8}}, 74.8, 48.1},
      {"equal-256x4096x4096-x4", {{256, 4096, 4096, 4}}, 70.2, 65.8},
      {"equal-512x768x768-x8", {{512, 768, 768, 8}}, 39.4, 26.9},
      {"equal-1024x1024x1024-x8", {{1024, 1024, 1024, 8}}, 50, 47.4},
      {"equal-2048x1024x1024-x4", {{2048, 1024, 1024, 4}}, 36, 32.8},
      {"equal-2048x2048x2048-x4", {{2048, 2048, 2048, 4}}, 110.7, 103.4},
      {"qkv-gqa-llama8b-m64", {{64, 4096, 4096, 1}, {64, 1024, 4096, 2}}, 29, 25},
      {"qkv-gqa-llama70b-tp4-m256", {{256, 2048, 8192, 1}, {256, 256, 8192, 2}}, 40.2, 34.5},
      {"gate-up-llama8b-m128", {{128, 14336, 4096, 2}}, 66.8, 64.4},
      {"moe-8of64-skewed-up",
       {{512, 1408, 2048, 1},
        {256, 1408, 2048, 1},
        {192, 1408, 2048, 1},
        {128, 1408, 2048, 1},
        {96, 1408, 2048, 1},
        {64, 1408, 2048, 1},
        {32, 1408, 2048, 1},
        {16, 1408, 2048, 1}},
       54.9,
       41.3},
      {"moe-16experts-skewed-mixtral-tp8",
       {{384, 1792, 4096, 1},
        {256, 1792, 4096, 1},
        {192, 1792, 4096, 1},
        {160, 1792, 4096, 1},
        {128, 1792, 4096, 1},
        {128, 1792, 4096, 1},
        {96, 1792, 4096, 1},
        {96, 1792, 4096, 1},
        {64, 1792, 4096, 1},
        {64, 1792, 4096, 1},
        {48, 1792, 4096, 1},
        {32, 1792, 4096, 1},
        {32, 1792, 4096, 1},
        {16, 1792, 4096, 1},
        {16, 1792, 4096, 1},
        {8, 1792, 4096, 1}},
       161,
       119},
      {"lora-rank16-8adapters-down",
       {{64, 16, 4096, 2}, {32, 16, 4096, 2}, {16, 16, 4096, 2}, {8, 16, 4096, 2}},
       55.2,
       10.4},
      {"lora-rank64-8adapters-up",
       {{64, 4096, 64, 2}, {32, 4096, 64, 2}, {16, 4096, 64, 2}, {8, 4096, 64, 2}},
       25.6,
       18.9},
      {"two-models-decode", {{32, 4096, 4096, 1}, {48, 5120, 5120, 1}}, 30.5, 26.8},
      {"four-models-decode",
       {{8, 2048, 2048, 1}, {16, 4096, 4096, 1}, {32, 3072, 3072, 1}, {64, 5120, 5120, 1}},
       47.1,
       35},
      {"decode-beside-prefill", {{32, 4096, 4096, 1}, {2048, 4096, 4096, 1}}, 112.7, 102.2},
      {"bert-base-heads-4req", {{128, 768, 768, 4}, {384, 768, 768, 4}}, 38.2, 25.5},
      {"bert-large-ffn-mixed-lengths",
       {{64, 4096, 1024, 1},
        {128, 4096, 1024, 1},
        {192, 4096, 1024, 1},
        {256, 4096, 1024, 1},
        {384, 4096, 1024, 1},
        {512, 4096, 1024, 1}},
       42.7,
       36.8},
      {"gnmt-lstm-gates", {{64, 4096, 1024, 4}, {128, 4096, 1024, 2}}, 32.8, 25},
      {"dlrm-mlp-towers",
       {{2048, 512, 256, 1}, {2048, 256, 512, 1}, {2048, 1024, 479, 1}, {2048, 1024, 1024, 1}},
       50.1,
       46.8},
      {"attention-out-and-router", {{256, 4096, 4096, 1}, {256, 64, 4096, 1}}, 24, 22},
  };
  return groups;
}

}  // namespace concert::policies

#endif  // CONCERT_TESTS_UNIT_POLICIES_MEASURED_GROUPS_H_
