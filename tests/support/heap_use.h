// Counts the heap allocations of one thread. A program that links this has its operator new
// replaced.
#ifndef CONCERT_TESTS_BENCH_ALLOCATION_COUNT_H_
#define CONCERT_TESTS_BENCH_ALLOCATION_COUNT_H_

#include <cstdint>

namespace concert::bench {

// Counts while it lives; one at a time.
class AllocationCount {
 public:
  // `thread_name` as pthread_setname_np gave it; must outlive this.
  explicit AllocationCount(const char* thread_name);
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  int64_t count() const;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_ALLOCATION_COUNT_H_
