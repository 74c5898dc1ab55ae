// A node of null devices, for tests of what stands between dispatchers.
#ifndef CONCERT_TESTS_UNIT_SCHED_NULL_NODE_H_
#define CONCERT_TESTS_UNIT_SCHED_NULL_NODE_H_

#include <memory>
#include <span>
#include <vector>

#include "tests/bench/null_device.h"

namespace concert::daemon {

class NullNode final : public Node {
 public:
  explicit NullNode(int gpus) {
    for (int i = 0; i < gpus; ++i) gpus_.push_back(std::make_unique<bench::NullDevice>());
  }
  int gpu_count() const override { return static_cast<int>(gpus_.size()); }
  Device& gpu(int index) override { return *gpus_[static_cast<size_t>(index)]; }
  absl::StatusOr<Address> RegisterHostMemory(void* data, uint64_t) override {
    return reinterpret_cast<Address>(data);
  }
  void UnregisterHostMemory(void*) override {}
  absl::Status Connect(std::span<const int>) override { return absl::OkStatus(); }
  absl::Status LaunchCollective(std::span<const RankPart>,
                                const policies::TransportChoice&) override {
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<bench::NullDevice>> gpus_;
};

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_SCHED_NULL_NODE_H_
