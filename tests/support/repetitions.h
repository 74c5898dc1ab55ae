// How often tests that try random things do so.
#ifndef CONCERT_TESTS_SUPPORT_REPETITIONS_H_
#define CONCERT_TESTS_SUPPORT_REPETITIONS_H_

#include <cstdint>
#include <cstdlib>

namespace concert::test {

// `usually`, or what CONCERT_TEST_REPETITIONS says: many in a long run, few under a checker.
inline uint32_t Repetitions(uint32_t usually) {
  const char* const text = std::getenv("CONCERT_TEST_REPETITIONS");
  return text == nullptr ? usually : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_REPETITIONS_H_
