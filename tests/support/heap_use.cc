#include "tests/support/heap_use.h"

#include <malloc.h>
#include <pthread.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};
std::atomic<int64_t> live_bytes{0};
thread_local std::atomic<int64_t> bytes_of_thread{0};

std::atomic<const char*> counted_thread{nullptr};
std::atomic<int64_t> counted{0};

void Count(int64_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  live_bytes.fetch_add(bytes, std::memory_order_relaxed);
  bytes_of_thread.fetch_add(bytes, std::memory_order_relaxed);
  const char* const name = counted_thread.load(std::memory_order_acquire);
  if (name == nullptr) return;
  char own_name[16] = "";
  pthread_getname_np(pthread_self(), own_name, sizeof(own_name));
  if (std::strcmp(own_name, name) == 0) counted.fetch_add(1, std::memory_order_relaxed);
}

void* Allocate(size_t bytes, size_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
  Count(static_cast<int64_t>(malloc_usable_size(memory)));
  return memory;
}

void Free(void* memory) {
  live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace concert::test {

int64_t Allocations() { return allocations; }
int64_t LiveBytes() { return live_bytes; }
const std::atomic<int64_t>& BytesOfThisThread() { return bytes_of_thread; }

AllocationCount::AllocationCount(const char* thread_name) {
  counted = 0;
  counted_thread.store(thread_name, std::memory_order_release);
}
AllocationCount::~AllocationCount() { counted_thread = nullptr; }

int64_t AllocationCount::count() const { return counted; }

}  // namespace concert::test
