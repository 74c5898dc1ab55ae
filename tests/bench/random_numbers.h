// Random numbers for operands, and work on all cores.
#ifndef CONCERT_TESTS_BENCH_RANDOM_NUMBERS_H_
#define CONCERT_TESTS_BENCH_RANDOM_NUMBERS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace concert::bench {

// SplitMix64 (Steele, Lea and Flood, 2014): one multiply-xorshift chain per number, any seed is
// good.
class Random {
 public:
  explicit Random(uint64_t seed, float scale = 1) : state_(seed), scale_(scale) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [-scale, scale), from 24 bits.
  float Uniform() { return scale_ * (static_cast<float>(Next() >> 40) * 0x1p-23f - 1.0f); }
  void set_scale(float scale) { scale_ = scale; }

 private:
  uint64_t state_;
  float scale_;
};

// Calls work(i) for i in [0, count) on all cores.
template <typename Work>
void ForEach(int count, const Work& work) {
  if (count == 1) return work(0);
  std::atomic<int> next{0};
  std::vector<std::jthread> threads;
  const int workers = std::min<int>(count, std::max(1u, std::thread::hardware_concurrency()));
  for (int i = 0; i < workers; ++i) {
    threads.emplace_back([&] {
      for (int item; (item = next.fetch_add(1)) < count;) work(item);
    });
  }
}

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RANDOM_NUMBERS_H_
