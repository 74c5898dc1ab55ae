// A fixed number of values, handed out as chains. Not thread-safe.
#ifndef CONCERT_DAEMON_DEVICE_SIM_CHAIN_POOL_H_
#define CONCERT_DAEMON_DEVICE_SIM_CHAIN_POOL_H_

#include <cstdint>
#include <vector>

namespace concert::daemon::sim {

template <typename T>
class ChainPool {
 public:
  static constexpr uint32_t kEnd = UINT32_MAX;

  explicit ChainPool(uint32_t capacity) : nodes_(capacity), available_(capacity) {
    for (uint32_t i = 0; i < capacity; ++i) nodes_[i].next = i + 1 < capacity ? i + 1 : kEnd;
    free_ = capacity > 0 ? 0 : kEnd;
  }

  uint32_t available() const { return available_; }

  // A chain of one, in front of `next`. REQUIRES: available() > 0.
  uint32_t Prepend(const T& value, uint32_t next) {
    const uint32_t index = free_;
    free_ = nodes_[index].next;
    --available_;
    nodes_[index] = {value, next};
    return index;
  }

  const T& operator[](uint32_t index) const { return nodes_[index].value; }
  uint32_t Next(uint32_t index) const { return nodes_[index].next; }

  // Gives the first of a chain back; returns what follows it.
  uint32_t ReleaseFirst(uint32_t first) {
    const uint32_t next = nodes_[first].next;
    nodes_[first].next = free_;
    free_ = first;
    ++available_;
    return next;
  }

  // Gives a whole chain back.
  void Release(uint32_t first) {
    while (first != kEnd) first = ReleaseFirst(first);
  }

 private:
  struct Node {
    T value{};
    uint32_t next = kEnd;
  };
  std::vector<Node> nodes_;
  uint32_t free_ = kEnd;
  uint32_t available_;
};

}  // namespace concert::daemon::sim

#endif  // CONCERT_DAEMON_DEVICE_SIM_CHAIN_POOL_H_
