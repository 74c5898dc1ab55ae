#include "daemon/session/sealed_memory.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "daemon/check.h"
#include "daemon/session/own_memory.h"

namespace concert::daemon {
absl::StatusOr<SealedMemory::Holding> SealedMemory::Seal(Account& account, const Allocation& from,
                                                         uint64_t bytes) {
  const absl::StatusOr<uint64_t> digest = node_.gpu(from.gpu).Digest(from.address, bytes);
  if (!digest.ok()) return digest.status();
  const Key key{.uid = account.uid(), .gpu = from.gpu, .bytes = bytes, .digest = *digest};
  const absl::StatusOr<Entries::iterator> found = Find(key, from);
  if (!found.ok()) return found.status();
  if (*found == entries_.end()) return Add(account, from, bytes);
  ++(*found)->second.holders;
  return Holding(*found, /*shared=*/true);
}

absl::StatusOr<SealedMemory::Entries::iterator> SealedMemory::Find(const Key& key,
                                                                   const Allocation& from) {
  const auto [begin, end] = entries_.equal_range(key);
  int compared = 0;
  for (auto entry = begin; entry != end && compared < kMaxCompared; ++entry, ++compared) {
    const absl::StatusOr<bool> same =
        node_.gpu(key.gpu).Same(from.address, entry->second.allocation.address, key.bytes);
    if (!same.ok()) return same.status();
    if (*same) return entry;
  }
  return entries_.end();
}

absl::StatusOr<SealedMemory::Holding> SealedMemory::Add(Account& account, const Allocation& from,
                                                        uint64_t bytes) {
  Device& device = node_.gpu(from.gpu);
  const absl::StatusOr<Allocation> copy = AllocateOwn(device, account, bytes);
  if (!copy.ok()) return copy.status();
  absl::Cleanup give_back = [&] { FreeOwn(device, account, *copy); };
  if (absl::Status status = device.Copy(copy->address, from.address, bytes); !status.ok())
    return status;
  // Of the copy, which nobody writes: the client may have written the buffer since the first.
  const absl::StatusOr<uint64_t> digest = device.Digest(copy->address, bytes);
  if (!digest.ok()) return digest.status();
  const Key key{.uid = account.uid(), .gpu = from.gpu, .bytes = bytes, .digest = *digest};
  const auto entry = entries_.emplace(key, Entry{.allocation = *copy, .account = &account});
  std::move(give_back).Cancel();
  return Holding(entry, /*shared=*/false);
}

void SealedMemory::Release(const Holding& holding) {
  Entry& entry = holding.entry_->second;
  CONCERT_CHECK(entry.holders > 0);
  if (--entry.holders > 0) return;
  FreeOwn(node_.gpu(entry.allocation.gpu), *entry.account, entry.allocation);
  entries_.erase(holding.entry_);
}

}  // namespace concert::daemon
