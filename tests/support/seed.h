// The seed of random tests: from the clock, so that every run tries something else, or from
// CONCERT_SEED, so that a run can be repeated.
#ifndef CONCERT_TESTS_SUPPORT_SEED_H_
#define CONCERT_TESTS_SUPPORT_SEED_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace concert::test {

// The same in all of a process, whichever tests it runs. Printed once, which ctest shows when a
// test has failed. A test that wants several adds to it. Any thread.
inline uint32_t Seed() {
  static const uint32_t seed = [] {
    const char* text = std::getenv("CONCERT_SEED");
    const uint32_t value =
        text != nullptr ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10))
                        : static_cast<uint32_t>(
                              std::chrono::system_clock::now().time_since_epoch().count() / 1000);
    std::printf("random tests: CONCERT_SEED=%u repeats them\n", value);
    std::fflush(stdout);
    return value;
  }();
  return seed;
}

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_SEED_H_
