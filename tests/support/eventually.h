// Waiting for what another thread or process does.
#ifndef CONCERT_TESTS_SUPPORT_EVENTUALLY_H_
#define CONCERT_TESTS_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace concert::test {

// How long nothing takes unless it fails.
inline constexpr std::chrono::seconds kPatience{30};

// Polls until the condition holds; false after kPatience.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_EVENTUALLY_H_
