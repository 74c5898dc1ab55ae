#include "daemon/device/sim/fair_share.h"

#include <algorithm>
#include <array>
#include <limits>

namespace concert::daemon::sim {

double FairCap(std::span<const double> demands, double capacity) {
  std::array<double, 64> sorted;
  const auto end =
      std::partial_sort_copy(demands.begin(), demands.end(), sorted.begin(), sorted.end());
  double left = capacity;
  for (auto it = sorted.begin(); it != end; ++it) {
    const double share = left / static_cast<double>(end - it);
    if (*it > share) return share;  // this one and all larger ones
    left -= *it;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace concert::daemon::sim
