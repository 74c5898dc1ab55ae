// Memory of sealed buffers: contents that never change. What a user has sealed more than once on a
// GPU is kept once.
//
// It is copied from the client's buffer to memory that no client ever maps. The client may be
// writing meanwhile, so that what it sealed is what the copy says: nothing is known of the copy by
// what was in the buffer before, and a buffer is taken to be equal to what is kept only after it
// was compared.
#ifndef CONCERT_DAEMON_SESSION_SEALED_MEMORY_H_
#define CONCERT_DAEMON_SESSION_SEALED_MEMORY_H_

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"

namespace concert::daemon {

// Control thread only, but for bytes().
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
    Account* account;             // alive: it is charged for the allocation
    std::list<uint32_t> holders;  // their sessions, the first to come first
  };
  using Entries = std::multimap<Key, Entry>;

 public:
  // Of that many entries of equal digest, which only somebody who looks for them makes, contents
  // are compared.
  static constexpr int kMaxCompared = 64;

  // Of a GPU: what entries take, and what they would take more if each holder had its own.
  struct Bytes {
    uint64_t held = 0, saved = 0;
  };

  // One holder's. To be given to Release once.
  class Holding {
   public:
    // As long as it is held.
    const Allocation& allocation() const { return entry_->second.allocation; }
    // Whether another holder came before this one and still is one: what this one has is saved
    // then. As of now, so that of n holders n - 1 share.
    bool shared() const { return holder_ != entry_->second.holders.begin(); }

   private:
    friend class SealedMemory;
    // The entry's last holder.
    explicit Holding(Entries::iterator entry)
        : entry_(entry), holder_(std::prev(entry->second.holders.end())) {}
    Entries::iterator entry_;
    std::list<uint32_t>::iterator holder_;
  };

  explicit SealedMemory(Node& node)
      : node_(node), counters_(static_cast<size_t>(node.gpu_count())) {}
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;

  // Memory with the `bytes` that `from` begins with, for ops that read it, held by a session of the
  // account's user. `account` is charged for each entry, not for each holder: Resource::kMappings
  // and kBufferBytes. RESOURCE_EXHAUSTED: its quota or the GPU has no room for a copy. Takes as
  // long as the device's Digest, Same and Copy.
  absl::StatusOr<Holding> Seal(Account& account, uint32_t session, const Allocation& from,
                               uint64_t bytes);
  // Frees it with its last holder. If this was the first of several, the session of who is that
  // now, perhaps the same: its holding, of as many bytes, is not shared any more. REQUIRES: no
  // launched op uses it for this holder.
  std::optional<uint32_t> Release(const Holding& holding);

  size_t size() const { return entries_.size(); }
  // Any thread: as of a moment ago, the one perhaps without the other.
  Bytes bytes(int gpu) const;

 private:
  struct Counters {
    std::atomic<uint64_t> held{0}, saved{0};
  };

  // The entry with the key whose contents are those of `from`; end() if there is none.
  absl::StatusOr<Entries::iterator> Find(const Key& key, const Allocation& from);
  absl::StatusOr<Entries::iterator> Add(Account& account, const Allocation& from, uint64_t bytes);

  Node& node_;
  Entries entries_;
  std::vector<Counters> counters_;  // by GPU
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_SEALED_MEMORY_H_
