// The device that tests run on, as whoever runs them says.
#ifndef CONCERT_TESTS_SUPPORT_TEST_DEVICE_H_
#define CONCERT_TESTS_SUPPORT_TEST_DEVICE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace concert::test {

// $CONCERT_TEST_DEVICE: "sim", unless given, or "cuda".
inline std::string TestDevice() {
  const char* device = std::getenv("CONCERT_TEST_DEVICE");
  return device == nullptr ? "sim" : device;
}

}  // namespace concert::test

// Ends a test for want of a usable GPU: skips it, or fails it where tests are to run on one, so
// that a suite that has tested nothing does not pass there.
#define CONCERT_END_WITHOUT_GPU(why)                                  \
  do {                                                                \
    if (concert::test::TestDevice() == "cuda") GTEST_FAIL() << (why); \
    GTEST_SKIP() << (why);                                            \
  } while (false)

#endif  // CONCERT_TESTS_SUPPORT_TEST_DEVICE_H_
