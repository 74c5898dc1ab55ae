// The GroupRecords of GEMMs seen lately, on the GPU: the same operands and tile cost a lookup.
#ifndef CONCERT_KERNELS_GROUP_GROUP_RECORDS_H_
#define CONCERT_KERNELS_GROUP_GROUP_RECORDS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/driver.h"
#include "kernels/group/group_args.h"
#include "kernels/group/pinned_mirror.h"
#include "kernels/group/plan/work_list.h"
#include "kernels/op.h"

namespace concert::kernels::cuda {

// A log that wraps: a new record takes the place of the oldest. What is found in the older half is
// written again at the end, so that a record is replaced only after kKept more have been written,
// when no launch that uses it can be unfinished. Not thread-safe.
class GroupRecords {
 public:
  // 1000 weights with 32 batch sizes each.
  static constexpr uint32_t kRecords = 1 << 15;
  static constexpr uint32_t kKept = kRecords / 2;

  GroupRecords();
  absl::Status Allocate(const Driver& driver, int gpu);
  void Free() { memory_.Free(); }

  // The record of this GEMM for this tile, on behalf of `track` (0 to 31). Writes it where it is
  // not there or the track has not used it; Upload sends what was written. INTERNAL if the driver
  // refuses a tensor map, which kernels/gemm's rules for groupable ops exclude.
  absl::StatusOr<uint32_t> Find(const GemmArgs& gemm, GroupTile tile, int track);

  // Of a record that Find returned, until the next call of Find.
  const GroupMaps& maps(uint32_t record) const { return memory_.host<GroupRecord>()[record].maps; }

  bool has_pending() const { return first_pending_ != next_ || !again_.empty(); }
  absl::Status Upload(CUstream stream);

  CUdeviceptr device() const { return memory_.device(); }

 private:
  // All that a record depends on; no padding, so that it can be compared as bytes.
  struct Key {
    uint64_t a, w, c, d, bias, a_scales, w_scales;
    uint64_t lda, ldw, ldc, ldd;
    uint32_t m, n, k;
    uint32_t alpha, beta;  // bits
    uint16_t w_rows, a_rows;
    uint8_t dtype, d_dtype, activation, scales_per_row;
    uint32_t reserved;
  };
  static_assert(sizeof(Key) == 120 && std::has_unique_object_representations_v<Key>);
  struct Known {
    Key key;
    uint32_t hash = 0;
    uint32_t tracks = 0;  // bit i: an upload for track i has been enqueued; 0: no record
  };
  static constexpr uint32_t kWays = 4;
  static constexpr uint32_t kBuckets = 2 * kRecords / kWays;

  static Key KeyOf(const GemmArgs& gemm, GroupTile tile);
  static uint32_t Hash(const GemmArgs& gemm, GroupTile tile);
  absl::Status Write(const GemmArgs& gemm, GroupTile tile, GroupRecord& record) const;
  absl::Status Encode(CUtensorMap& map, Address base, Dtype dtype, uint64_t columns, uint64_t rows,
                      uint64_t row_stride, uint32_t box_rows) const;
  void Forget(uint32_t record);

  const Driver* driver_ = nullptr;
  int gpu_ = 0;
  PinnedMirror memory_;
  std::vector<Known> known_;                          // by record
  std::vector<std::array<uint32_t, kWays>> buckets_;  // record + 1; 0: empty
  uint32_t next_ = 0, first_pending_ = 0;
  std::vector<uint32_t> again_;  // pending records of another track
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_GROUP_RECORDS_H_
