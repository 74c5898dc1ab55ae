// Memory of sealed buffers: contents that never change. What a user has sealed more than once on a
// GPU is kept once.
//
// It is copied from the client's buffer to memory that no client ever maps. The client may be
// writing meanwhile, so that what it sealed is what the copy says: nothing is known of the copy by
// what was in the buffer before, and a buffer is taken to be equal to what is kept only after it
// was compared.
#ifndef CONCERT_DAEMON_SESSION_SEALED_MEMORY_H_
#define CONCERT_DAEMON_SESSION_SEALED_MEMORY_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"

namespace concert::daemon {

// Control thread only.
class SealedMemory {
 private:
  struct Key {
    uint32_t uid;
    int gpu;
    uint64_t bytes;
    uint64_t digest;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    Allocation allocation;
    Account* account;  // alive: it is charged for the allocation
    uint64_t holders = 1;
  };
  using Entries = std::multimap<Key, Entry>;

 public:
  // Of that many entries of equal digest, which only somebody who looks for them makes, contents
  // are compared.
  static constexpr int kMaxCompared = 64;

  // One holder's. To be given to Release once.
  class Holding {
   public:
    // As long as it is held.
    const Allocation& allocation() const { return entry_->second.allocation; }
    // Whether there was another holder when this one came.
    bool shared() const { return shared_; }

   private:
    friend class SealedMemory;
    Holding(Entries::iterator entry, bool shared) : entry_(entry), shared_(shared) {}
    Entries::iterator entry_;
    bool shared_;
  };

  explicit SealedMemory(Node& node) : node_(node) {}
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;

  // Memory with the `bytes` that `from` begins with, for ops that read it. `account` is charged for
  // each entry, not for each holder: Resource::kMappings and kBufferBytes. RESOURCE_EXHAUSTED: its
  // quota or the GPU has no room for a copy. Takes as long as the device's Digest, Same and Copy.
  absl::StatusOr<Holding> Seal(Account& account, const Allocation& from, uint64_t bytes);
  // Frees it with its last holder. REQUIRES: no launched op uses it for this holder.
  void Release(const Holding& holding);

  size_t size() const { return entries_.size(); }

 private:
  // The entry with the key whose contents are those of `from`; end() if there is none.
  absl::StatusOr<Entries::iterator> Find(const Key& key, const Allocation& from);
  absl::StatusOr<Holding> Add(Account& account, const Allocation& from, uint64_t bytes);

  Node& node_;
  Entries entries_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_SEALED_MEMORY_H_
