// Access to words that another process or a GPU reads or writes. Plain atomic_ref will not do: it
// cannot load through a pointer to const, and half of the words lie in memory that this process may
// only read.
#ifndef CONCERT_CLIENT_SRC_REMOTE_SHARED_WORD_H_
#define CONCERT_CLIENT_SRC_REMOTE_SHARED_WORD_H_

#include <cstdint>

namespace concert::client {

template <typename T>
T LoadAcquire(const T* word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

template <typename T>
void StoreRelease(T* word, T value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

// To `value` unless it is there already. Release.
inline void RaiseRelease(uint64_t* word, uint64_t value) {
  uint64_t now = LoadAcquire(word);
  while (now < value && !__atomic_compare_exchange_n(word, &now, value, /*weak=*/true,
                                                     __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
}

// Orders an earlier store before a later load: the client's half of both Dekker pairs of
// ring_abi.h.
inline void FullFence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_SHARED_WORD_H_
