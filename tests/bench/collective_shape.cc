#include "tests/bench/collective_shape.h"

#include <algorithm>

namespace concert::bench {

const char* KindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
  }
  return "?";
}

std::optional<CollectiveKind> FindCollectiveKind(std::string_view name) {
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    if (KindName(kind) == name) return kind;
  }
  return std::nullopt;
}

double CollectiveShape::bus_factor() const {
  const double others = (ranks - 1.0) / ranks;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * others;
    case CollectiveKind::kBroadcast:
      return 1;
    default:
      return others;
  }
}

double CollectiveShape::hbm_bytes() const {
  const auto read = static_cast<double>(src_bytes());
  const auto written = static_cast<double>(dst_bytes());
  switch (kind) {
    case CollectiveKind::kAllGather:
      return read + (written - read);  // its own slot is there already
    case CollectiveKind::kBroadcast:
      return std::max(read, written);  // the root reads, the others write
    default:
      return read + written;
  }
}

}  // namespace concert::bench
