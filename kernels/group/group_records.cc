#include "kernels/group/group_records.h"

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/group/group_operand.h"

namespace concert::kernels::cuda {
namespace {

// Odd numbers that have nothing in common: the steps of a generator (Knuth's MMIX).
constexpr auto kFactors = [] {
  std::array<uint64_t, 5> factors{};
  uint64_t state = 0;
  for (uint64_t& factor : factors) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    factor = state | 1;
  }
  return factors;
}();

CUtensorMapDataType MapType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case Dtype::kFp8E4m3:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case Dtype::kFp32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case Dtype::kBf16:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

}  // namespace

GroupRecords::GroupRecords() : known_(kRecords), buckets_(kBuckets) {
  again_.reserve(kMaxGroupProblems);
}

absl::Status GroupRecords::Allocate(const Driver& driver, int gpu) {
  driver_ = &driver;
  gpu_ = gpu;
  return memory_.Allocate(driver, gpu, kRecords * sizeof(GroupRecord));
}

GroupRecords::Key GroupRecords::KeyOf(const GemmArgs& gemm, GroupTile tile) {
  return {.a = gemm.a,
          .w = gemm.w,
          .c = gemm.beta != 0.0f ? gemm.c : 0,
          .d = gemm.d,
          .bias = gemm.bias,
          .a_scales = gemm.a_scales,
          .w_scales = gemm.w_scales,
          .lda = gemm.lda,
          .ldw = gemm.ldw,
          .ldc = gemm.beta != 0.0f ? gemm.ldc : 0,
          .ldd = gemm.ldd,
          .m = gemm.m,
          .n = gemm.n,
          .k = gemm.k,
          .alpha = std::bit_cast<uint32_t>(gemm.alpha),
          .beta = std::bit_cast<uint32_t>(gemm.beta),
          .w_rows = tile.w_rows,
          .a_rows = tile.a_rows,
          .dtype = static_cast<uint8_t>(gemm.dtype),
          .d_dtype = static_cast<uint8_t>(gemm.d_dtype),
          .activation = static_cast<uint8_t>(gemm.activation),
          .scales_per_row = static_cast<uint8_t>((gemm.a_scales_per_row ? 1 : 0) |
                                                 (gemm.w_scales_per_row ? 2 : 0)),
          .reserved = 0};
}

// Of what tells GEMMs apart nearly always; the rest is compared. Multilinear, like
// policies::HashWork: the products are independent, so that the CPU overlaps them.
uint32_t GroupRecords::Hash(const GemmArgs& gemm, GroupTile tile) {
  const uint64_t sum =
      gemm.a * kFactors[0] + gemm.w * kFactors[1] + gemm.d * kFactors[2] +
      (uint64_t{gemm.m} << 32 | gemm.n) * kFactors[3] +
      (uint64_t{gemm.k} << 32 | uint32_t{tile.w_rows} << 16 | tile.a_rows) * kFactors[4];
  return static_cast<uint32_t>((sum ^ sum >> 32) * 0x165667b19e3779f9 >> 32);
}

absl::StatusOr<uint32_t> GroupRecords::Find(const GemmArgs& gemm, GroupTile tile, int track) {
  const Key key = KeyOf(gemm, tile);
  const uint32_t hash = Hash(gemm, tile), track_bit = 1u << track;
  std::array<uint32_t, kWays>& bucket = buckets_[hash % kBuckets];
  for (const uint32_t entry : bucket) {
    if (entry == 0) continue;
    Known& known = known_[entry - 1];
    if (known.hash != hash || std::memcmp(&known.key, &key, sizeof(key)) != 0) continue;
    const uint32_t until_replaced = (entry - 1 - next_) % kRecords;
    if (until_replaced < kKept) {
      Forget(entry - 1);
      break;
    }
    if ((known.tracks & track_bit) == 0) again_.push_back(entry - 1);
    known.tracks |= track_bit;
    return entry - 1;
  }
  const uint32_t record = next_;
  Forget(record);
  if (absl::Status status = Write(gemm, tile, memory_.host<GroupRecord>()[record]); !status.ok()) {
    return status;
  }
  known_[record] = {.key = key, .hash = hash, .tracks = track_bit};
  uint32_t way = 0;
  while (way < kWays && bucket[way] != 0) ++way;
  if (way == kWays) {
    way = record % kWays;
    known_[bucket[way] - 1].tracks = 0;
  }
  bucket[way] = record + 1;
  next_ = (next_ + 1) % kRecords;
  return record;
}

void GroupRecords::Forget(uint32_t record) {
  if (known_[record].tracks == 0) return;
  known_[record].tracks = 0;
  for (uint32_t& entry : buckets_[known_[record].hash % kBuckets]) {
    if (entry == record + 1) entry = 0;
  }
}

absl::Status GroupRecords::Upload(CUstream stream) {
  absl::Status status;
  const auto upload = [&](uint32_t begin, uint32_t end) {
    if (begin == end || !status.ok()) return;
    status =
        memory_.Upload(begin * sizeof(GroupRecord), (end - begin) * sizeof(GroupRecord), stream);
  };
  if (next_ >= first_pending_) {
    upload(first_pending_, next_);
  } else {
    upload(first_pending_, kRecords);
    upload(0, next_);
  }
  for (const uint32_t record : again_) upload(record, record + 1);
  again_.clear();
  first_pending_ = next_;
  return status;
}

absl::Status GroupRecords::Write(const GemmArgs& gemm, GroupTile tile, GroupRecord& record) const {
  record = {};
  const auto store_rows = static_cast<uint32_t>(GroupStoreRows(tile));
  absl::Status status =
      Encode(record.maps.w, gemm.w, gemm.dtype, gemm.k, gemm.n, gemm.ldw, GroupLoadRowsW(tile));
  status.Update(
      Encode(record.maps.a, gemm.a, gemm.dtype, gemm.k, gemm.m, gemm.lda, GroupLoadRowsA(tile)));
  if (GroupOperand::D(gemm).MapTakes()) {
    status.Update(
        Encode(record.maps.d, gemm.d, gemm.d_dtype, gemm.n, gemm.m, gemm.ldd, store_rows));
  }
  record.d_rows = reinterpret_cast<void*>(gemm.d);
  record.ldd = gemm.ldd;
  record.bias = reinterpret_cast<const void*>(gemm.bias);
  record.c = reinterpret_cast<const void*>(gemm.beta != 0.0f ? gemm.c : 0);
  record.a_scales = reinterpret_cast<const float*>(gemm.a_scales);
  record.w_scales = reinterpret_cast<const float*>(gemm.w_scales);
  record.ldc = gemm.ldc;
  record.alpha = gemm.alpha;
  record.beta = gemm.beta;
  record.activation = static_cast<uint32_t>(gemm.activation);
  return status;
}

absl::Status GroupRecords::Encode(CUtensorMap& map, Address base, Dtype dtype, uint64_t columns,
                                  uint64_t rows, uint64_t row_stride, uint32_t box_rows) const {
  const cuuint64_t sizes[] = {columns, rows};
  // The stride of a single row means nothing, but the driver wants it to hold the row.
  const cuuint64_t strides[] = {row_stride * DtypeBytes(dtype)};
  const cuuint32_t box[] = {kGroupBlockKBytes / DtypeBytes(dtype), box_rows};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result = driver_->cuTensorMapEncodeTiled(
      &map, MapType(dtype), 2, reinterpret_cast<void*>(base), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuTensorMapEncodeTiled on GPU ", gpu_, " refused ", rows,
                                          " rows of ", columns, " elements, row stride ",
                                          row_stride, ": CUresult ", static_cast<int>(result)));
}

}  // namespace concert::kernels::cuda
