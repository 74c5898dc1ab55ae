// What a program takes from the heap. One that links this has its operator new replaced.
#ifndef CONCERT_TESTS_SUPPORT_HEAP_USE_H_
#define CONCERT_TESTS_SUPPORT_HEAP_USE_H_

#include <atomic>
#include <cstdint>

namespace concert::test {

// Of all threads, since the program began.
int64_t Allocations();
int64_t LiveBytes();
// What the calling thread has allocated. Any thread may read it while that one lives.
const std::atomic<int64_t>& BytesOfThisThread();

// Counts the allocations of one thread while it lives; one at a time.
class AllocationCount {
 public:
  // `thread_name` as pthread_setname_np gave it; must outlive this.
  explicit AllocationCount(const char* thread_name);
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  int64_t count() const;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_HEAP_USE_H_
