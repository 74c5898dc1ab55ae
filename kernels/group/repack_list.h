// The copies that one group launch needs, one behind the other in a scratch.
#ifndef CONCERT_KERNELS_GROUP_REPACK_LIST_H_
#define CONCERT_KERNELS_GROUP_REPACK_LIST_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "kernels/group/group_operand.h"
#include "kernels/group/plan/work_list.h"
#include "kernels/group/repack.h"
#include "kernels/op.h"

namespace concert::kernels::cuda {

// Places depend on nothing but what was added before, so that the same launch, made again, finds
// its records again. Allocates nothing. Not thread-safe.
class RepackList {
 public:
  // An empty list for a scratch of kGroupRepackBytes, aligned to kRepackAlignment.
  void Start(Address scratch) {
    scratch_ = scratch;
    used_ = 0;
    matrices_ = 0;
  }

  // `gemm` with A and W where a tensor map takes them. REQUIRES: GroupRepackBytes() of all GEMMs
  // added since Start is at most kGroupRepackBytes, and they are at most kMaxGroupProblems.
  GemmArgs Add(const GemmArgs& gemm) {
    GemmArgs repacked = gemm;
    Place(GroupOperand::A(gemm), repacked.a, repacked.lda);
    Place(GroupOperand::W(gemm), repacked.w, repacked.ldw);
    return repacked;
  }

  bool empty() const { return matrices_ == 0; }
  // What to launch, in any order.
  std::span<const RepackArgs> launches() const {
    return {launches_.data(), (matrices_ + kRepackMatrices - 1) / kRepackMatrices};
  }

 private:
  static constexpr size_t kMaxLaunches = 2 * kMaxGroupProblems / kRepackMatrices;

  void Place(const GroupOperand& from, Address& begin, uint64_t& row_stride) {
    if (from.MapTakes()) return;
    begin = scratch_ + used_;
    row_stride = from.RepackedRowBytes() / from.element_bytes;
    used_ += from.RepackedBytes();
    const size_t index = matrices_ % kRepackMatrices;
    RepackArgs& launch = launches_[matrices_ / kRepackMatrices];
    ++matrices_;
    if (index == 0) {
      launch.blocks = 0;
      std::fill(std::begin(launch.first_block), std::end(launch.first_block), UINT32_MAX);
    }
    const auto pieces_per_row = static_cast<uint32_t>(from.RepackedRowBytes() / kRepackPieceBytes);
    const uint32_t pieces = from.rows * pieces_per_row;
    launch.matrices[index] = {.from = from.begin,
                              .from_stride = from.row_stride * from.element_bytes,
                              .to = begin,
                              .row_bytes = from.columns * from.element_bytes,
                              .pieces_per_row = pieces_per_row,
                              .pieces = pieces,
                              .reserved = 0};
    launch.first_block[index] = launch.blocks;
    launch.blocks += (pieces + kRepackThreads - 1) / kRepackThreads;
  }

  Address scratch_ = 0;
  uint64_t used_ = 0;
  size_t matrices_ = 0;
  std::array<RepackArgs, kMaxLaunches> launches_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_REPACK_LIST_H_
