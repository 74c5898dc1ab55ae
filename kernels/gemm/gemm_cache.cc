#include "kernels/gemm/gemm_cache.h"

#include <algorithm>
#include <bit>

#include "absl/hash/hash.h"

namespace concert::kernels::cuda {
namespace {

// cuBLASLt's kernels may read the bias and vectors of scales this wide, whatever they declare.
constexpr uint64_t kVectorBytes = 16;

uint8_t AlignmentLog2(Address address) {
  return static_cast<uint8_t>(std::min(std::countr_zero(address), 8));
}

ScaleMode ScaleModeOf(Address scales, bool per_row) {
  if (scales == 0) return ScaleMode::kNone;
  return per_row ? ScaleMode::kPerRow : ScaleMode::kPerTensor;
}

}  // namespace

GemmKey GemmKey::Of(const GemmArgs& args, int sm_budget, uint64_t workspace_bytes) {
  GemmKey key;
  key.m = args.m, key.n = args.n, key.k = args.k, key.batch = args.batch;
  key.lda = args.lda, key.ldw = args.ldw, key.ldd = args.ldd;
  key.has_c = args.beta != 0.0f;  // NaN too
  key.ldc = key.has_c ? args.ldc : args.ldd;
  if (args.batch > 1) {  // strides of a lone member do not matter
    key.stride_a = args.stride_a, key.stride_w = args.stride_w, key.stride_d = args.stride_d;
    key.stride_c = key.has_c ? args.stride_c : args.stride_d;
  }
  key.dtype = args.dtype;
  key.d_dtype = args.d_dtype;
  key.a_scales = ScaleModeOf(args.a_scales, args.a_scales_per_row);
  key.w_scales = ScaleModeOf(args.w_scales, args.w_scales_per_row);
  key.scales_aligned = (args.a_scales | args.w_scales) % kVectorBytes == 0;
  key.activation = args.activation;
  key.allow_tf32 = args.dtype == Dtype::kFp32 && args.allow_tf32;
  key.has_bias = args.bias != 0;
  key.bias_aligned = args.bias % kVectorBytes == 0;
  key.align_a = AlignmentLog2(args.a), key.align_w = AlignmentLog2(args.w),
  key.align_d = AlignmentLog2(args.d);
  key.align_c = key.has_c ? AlignmentLog2(args.c) : key.align_d;
  key.sm_budget = static_cast<uint16_t>(sm_budget);
  key.workspace_bytes = workspace_bytes;
  return key;
}

size_t GemmCache::SetOf(const GemmKey& key) { return absl::Hash<GemmKey>()(key) % kSets; }

const GemmEntry* GemmCache::FindIn(size_t set, const GemmKey& key) const {
  const GemmEntry* const first = &entries_[set * kWays];
  for (const GemmEntry* entry = first; entry != first + kWays; ++entry) {
    if (entry->path != GemmPath::kUnplanned && entry->key == key) return entry;
  }
  return nullptr;
}

const GemmEntry* GemmCache::Peek(const GemmKey& key) const { return FindIn(SetOf(key), key); }

GemmEntry& GemmCache::Find(const GemmKey& key) {
  const size_t set = SetOf(key);
  if (const GemmEntry* entry = FindIn(set, key)) {
    Increment(hits_);
    return entries_[entry - entries_.data()];
  }
  Increment(misses_);
  GemmEntry& victim = entries_[set * kWays + next_victim_[set]];
  next_victim_[set] = (next_victim_[set] + 1) % kWays;
  victim.key = key;
  victim.path = GemmPath::kUnplanned;
  victim.blocks = 0;
  return victim;
}

}  // namespace concert::kernels::cuda
