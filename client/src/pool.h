// The pool: buffers behind a framework's allocator, found by address. One for the process, because
// the functions of such an allocator know no session.
#ifndef CONCERT_CLIENT_SRC_POOL_H_
#define CONCERT_CLIENT_SRC_POOL_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "client/src/fork.h"
#include "client/src/handles.h"
#include "concert/concert.h"
#include "proto/mutex.h"

namespace concert::client {

// For any thread. The functions are those of concert.h.
class Pool {
 public:
  // The process's. A child of fork() has one of its own: its parent's buffers are not its, and a
  // thread that it lacks may hold the mutex.
  static Pool& Get();

  void Use(concert_session* session);
  int Allocate(uint64_t bytes, int device, void** address, concert_error* error);
  void Free(void* address);
  int Find(const concert_session* session, const void* address, concert_slice* slice,
           concert_error* error);
  uint64_t frees() const { return frees_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    std::unique_ptr<concert_buffer> buffer;
    const concert_session* session;  // alive, because the buffer shares it
    concert_gpu gpu;
  };

  Mutex mutex_;
  std::weak_ptr<concert_session> session_ CONCERT_GUARDED_BY(mutex_);
  std::map<uintptr_t, Block> blocks_ CONCERT_GUARDED_BY(mutex_);
  // Who asks passes memory between threads by other means; this only counts.
  std::atomic<uint64_t> frees_{0};
  const Origin origin_{};
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_POOL_H_
