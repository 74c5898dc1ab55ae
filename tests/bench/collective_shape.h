// A collective of a benchmark: its sizes, the bytes that it must move, and nccl-tests' terms.
#ifndef CONCERT_TESTS_BENCH_COLLECTIVE_SHAPE_H_
#define CONCERT_TESTS_BENCH_COLLECTIVE_SHAPE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace concert::bench {

enum class CollectiveKind : uint32_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast
};
inline constexpr std::array kAllCollectiveKinds = {
    CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
    CollectiveKind::kAllToAll, CollectiveKind::kBroadcast};

const char* KindName(CollectiveKind kind);  // "all_reduce"
std::optional<CollectiveKind> FindCollectiveKind(std::string_view name);

// In bf16. All-gather and broadcast are in place, so that no time goes into a copy of what is there
// already; the others leave their input as it is. Rank 0 is the broadcast's root.
struct CollectiveShape {
  static constexpr uint64_t kElementBytes = 2;

  CollectiveKind kind = CollectiveKind::kAllReduce;
  // As nccl-tests count them: all-gather: the output of one rank; reduce-scatter and all-to-all:
  // the input of one rank; all-reduce and broadcast: the tensor. A multiple of ranks *
  // kElementBytes.
  uint64_t bytes = 0;
  uint32_t ranks = 0;

  bool reduces() const {
    return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
  }
  bool in_place() const {
    return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kBroadcast;
  }
  uint64_t slot_bytes() const { return bytes / ranks; }
  // Of one rank.
  uint64_t src_bytes() const { return kind == CollectiveKind::kAllGather ? slot_bytes() : bytes; }
  uint64_t dst_bytes() const {
    return kind == CollectiveKind::kReduceScatter ? slot_bytes() : bytes;
  }
  // As concert_collective and NCCL count.
  uint64_t count() const {
    const bool per_rank = kind != CollectiveKind::kAllReduce && kind != CollectiveKind::kBroadcast;
    return (per_rank ? slot_bytes() : bytes) / kElementBytes;
  }

  // busbw / algbw, where algbw is bytes / time (nccl-tests, doc/PERFORMANCE.md).
  double bus_factor() const;
  // What the memory of the busiest GPU must read and write at least, everything once.
  double hbm_bytes() const;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_COLLECTIVE_SHAPE_H_
