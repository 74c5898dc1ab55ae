#include "tests/bench/allocation_count.h"

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<const char*> counted_thread{nullptr};
std::atomic<int64_t> allocations{0};

void* Allocate(size_t bytes, size_t alignment) {
  if (const char* counted = counted_thread.load(std::memory_order_acquire)) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    if (std::strcmp(name, counted) == 0) allocations.fetch_add(1, std::memory_order_relaxed);
  }
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace concert::bench {

AllocationCount::AllocationCount(const char* thread_name) {
  allocations = 0;
  counted_thread.store(thread_name, std::memory_order_release);
}
AllocationCount::~AllocationCount() { counted_thread = nullptr; }

int64_t AllocationCount::count() const { return allocations; }

}  // namespace concert::bench
