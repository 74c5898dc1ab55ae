#include "tests/bench/rank_client.h"

#include <string_view>
#include <utility>

namespace concert::bench {

const LocalWay* FindLocalWay(std::string_view name) {
  using Order = LocalWay::Order;
  using Library = LocalWay::Library;
  static constexpr std::pair<std::string_view, LocalWay> kWays[] = {
      {"serial", {Order::kSerial, Library::kAny}},
      {"streams", {Order::kStreams, Library::kAny}},
      {"priority", {Order::kPriority, Library::kAny}},
      {"priority_8_ctas", {Order::kPriority, Library::kEight}},
      {"conccl", {Order::kPriority, Library::kZeroCta}},
  };
  for (const auto& [known, way] : kWays) {
    if (known == name) return &way;
  }
  return nullptr;
}

}  // namespace concert::bench
