// What tests tell the fake driver (fake_driver.cc) and ask it. Found with dlsym: it is opened as
// libcuda.so.1 would be.
#ifndef CONCERT_TESTS_UNIT_CLIENT_FAKE_DRIVER_H_
#define CONCERT_TESTS_UNIT_CLIENT_FAKE_DRIVER_H_

#include <cstdint>

namespace concert::test {

struct FakeDriver {
  // From now on every look at a stream finds that the device has failed.
  bool failed = false;
  // Calls that would have waited for work that cannot end, which on a GPU is for ever.
  int hung = 0;
  int streams = 0;     // that are there, or destroyed but not at their end
  int64_t bytes = 0;   // of memory that is allocated
  int matmuls = 0;     // that were enqueued
  int algorithms = 1;  // that cuBLASLt offers for a GEMM
  int contexts = 0;    // that are pushed; with none, none is current
  int registered = 0;  // ranges of host memory
};

constexpr char kFakeDriverSymbol[] = "concert_fake_driver";  // a FakeDriver

}  // namespace concert::test

#endif  // CONCERT_TESTS_UNIT_CLIENT_FAKE_DRIVER_H_
