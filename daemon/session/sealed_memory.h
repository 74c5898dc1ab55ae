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
#include "proto/mutex.h"

namespace concert::daemon {

// The control thread's, but for Keep and bytes().
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
    std::list<uint32_t> holders;  // their sessions, the first to come first; the control thread's
    uint32_t uses;                // holders, and who has it from Keep; guarded by mutex_
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

  // An entry that stays while it is kept. To be given to Hold or to GiveUp, once.
  class Kept {
    friend class SealedMemory;
    explicit Kept(Entries::iterator entry) : entry_(entry) {}
    Entries::iterator entry_;
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

  // Memory with the `bytes` that `from` begins with, for ops that read it. `account` is charged for
  // each entry, not for each holder: Resource::kMappings and kBufferBytes. RESOURCE_EXHAUSTED: its
  // quota or the GPU has no room for a copy. Takes as long as the device's Digest, Same and Copy.
  // One thread at a time, beside the control thread.
  absl::StatusOr<Kept> Keep(Account& account, const Allocation& from, uint64_t bytes);
  // From here on a session of that user holds it.
  Holding Hold(const Kept& kept, uint32_t session);
  void GiveUp(const Kept& kept) { EndUse(kept.entry_); }
  // Frees it with its last holder. If this was the first of several, the session of who is that
  // now, perhaps the same: its holding, of as many bytes, is not shared any more. REQUIRES: no
  // launched op uses it for this holder.
  std::optional<uint32_t> Release(const Holding& holding);

  size_t size() const;
  // Any thread: as of a moment ago, the one perhaps without the other.
  Bytes bytes(int gpu) const;

 private:
  struct Counters {
    std::atomic<uint64_t> held{0}, saved{0};
  };

  // The entry with the key whose contents are those of `from`, kept; none if there is none.
  absl::StatusOr<std::optional<Kept>> Find(const Key& key, const Allocation& from);
  absl::StatusOr<Kept> Add(Account& account, const Allocation& from, uint64_t bytes);
  // Those that are compared, each kept.
  std::vector<Entries::iterator> Candidates(const Key& key);
  // Frees the entry with its last use.
  void EndUse(Entries::iterator entry);

  Node& node_;
  // Never held while a device works. Entries that are in use stay where they are, and what is not
  // said to be guarded is read without it.
  mutable Mutex mutex_;
  Entries entries_ CONCERT_GUARDED_BY(mutex_);
  std::vector<Counters> counters_;  // by GPU
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_SEALED_MEMORY_H_
