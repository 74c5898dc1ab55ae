#include "client/src/pool.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "client/src/cuda/driver.h"
#include "client/src/entry.h"
#include "client/src/failure.h"

namespace concert::client {
namespace {

// The daemon's number of this process's CUDA device. Simulated GPUs have only the daemon's.
int GpuOf(const concert_session& session, int device, uint32_t* gpu, concert_error* error) {
  const auto gpus = session.gpus();
  if (gpus.empty() || gpus[0].backend == CONCERT_BACKEND_SIM) {
    *gpu = static_cast<uint32_t>(device);
    if (device >= 0 && *gpu < gpus.size()) return CONCERT_OK;
    return Fail(error, CONCERT_INVALID_ARGUMENT, "device is %d; the daemon has %zu GPUs", device,
                gpus.size());
  }
  cuda::Uuid uuid;
  if (int code = cuda::DescribeDevice(device, &uuid, error)) return code;
  for (*gpu = 0; *gpu < gpus.size(); ++*gpu) {
    if (std::memcmp(gpus[*gpu].uuid, uuid, sizeof(uuid)) == 0) return CONCERT_OK;
  }
  return Fail(error, CONCERT_INVALID_ARGUMENT, "CUDA device %d is none of the daemon's %zu GPUs",
              device, gpus.size());
}

}  // namespace

// None is ever destroyed: frameworks free memory while statics are.
Pool& Pool::Get() {
  static std::atomic<Pool*> process_pool{new Pool};
  Pool* pool = process_pool.load(std::memory_order_acquire);
  if (pool->origin_.forked()) [[unlikely]] {
    auto own = std::make_unique<Pool>();
    if (process_pool.compare_exchange_strong(pool, own.get(), std::memory_order_acq_rel)) {
      pool = own.release();
    }
  }
  return *pool;
}

void Pool::Use(concert_session* session) {
  const MutexLock lock(mutex_);
  session_ = session == nullptr ? std::weak_ptr<concert_session>() : session->weak_from_this();
}

int Pool::Allocate(uint64_t bytes, int device, void** address, concert_error* error) {
  std::shared_ptr<concert_session> session;
  {
    const MutexLock lock(mutex_);
    session = session_.lock();
  }
  if (session == nullptr) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "no session is open that concert_pool_use was given");
  }
  uint32_t gpu = 0;
  if (int code = GpuOf(*session, device, &gpu, error)) return code;
  concert_buffer* made = nullptr;
  if (int code = session->Allocate(gpu, bytes, &made, error)) return code;
  std::unique_ptr<concert_buffer> buffer(made);
  buffer->of_pool = true;
  if (int code = buffer->Address(address, error)) return code;
  Block block{std::move(buffer), session.get(), session->gpus()[gpu]};
  const MutexLock lock(mutex_);
  blocks_.insert_or_assign(reinterpret_cast<uintptr_t>(*address), std::move(block));
  return CONCERT_OK;
}

void Pool::Free(void* address) {
  Block block{};
  {
    const MutexLock lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<uintptr_t>(address));
    if (found == blocks_.end()) return;
    block = std::move(found->second);
    blocks_.erase(found);
    // Before the address can be given out again.
    frees_.fetch_add(1, std::memory_order_relaxed);
  }
  if (block.gpu.backend == CONCERT_BACKEND_CUDA) {
    // Kernels of the process may still use it, and unmapping waits for nobody. A device that failed
    // has no work left.
    cuda::Synchronize(block.gpu.uuid, nullptr);
  }
}

int Pool::Find(const concert_session* session, const void* address, concert_slice* slice,
               concert_error* error) {
  const MutexLock lock(mutex_);
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  auto found = blocks_.upper_bound(wanted);
  if (found == blocks_.begin() || wanted - (--found)->first >= found->second.buffer->bytes) {
    return Fail(error, CONCERT_NOT_FOUND, "%p is in no memory of the pool", address);
  }
  if (found->second.session != session) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "%p is memory that the pool made with another session", address);
  }
  *slice = {found->second.buffer.get(), wanted - found->first};
  return CONCERT_OK;
}

}  // namespace concert::client

using concert::client::Fail;
using concert::client::FailForked;
using concert::client::Guard;
using concert::client::IsForked;
using concert::client::Pool;

int concert_pool_use(concert_session* session, concert_error* error) {
  if (session != nullptr && IsForked(session)) return FailForked("session", error);
  return Guard(error, [&] {
    Pool::Get().Use(session);
    return static_cast<int>(CONCERT_OK);
  });
}

void* concert_pool_allocate(uint64_t bytes, int device, void* /*stream*/) {
  void* address = nullptr;
  concert_error error;
  const int code =
      Guard(&error, [&] { return Pool::Get().Allocate(bytes, device, &address, &error); });
  if (code == CONCERT_OK) return address;
  // There is no other way to a user whose framework only knows that memory is missing.
  std::fprintf(stderr, "libconcert: no %llu bytes for the pool: %s\n",
               static_cast<unsigned long long>(bytes), error.message);
  return nullptr;
}

void concert_pool_free(void* address, uint64_t /*bytes*/, int /*device*/, void* /*stream*/) {
  if (address != nullptr) Pool::Get().Free(address);
}

int concert_pool_find(concert_session* session, const void* address, concert_slice* slice,
                      concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  CONCERT_REQUIRE(slice);
  return Guard(error, [&] { return Pool::Get().Find(session, address, slice, error); });
}

uint64_t concert_pool_frees(void) { return Pool::Get().frees(); }
