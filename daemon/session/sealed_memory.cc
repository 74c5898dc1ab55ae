#include "daemon/session/sealed_memory.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "daemon/session/own_memory.h"

namespace concert::daemon {
absl::StatusOr<SealedMemory::Holding> SealedMemory::Seal(Account& account, uint32_t session,
                                                         const Allocation& from, uint64_t bytes) {
  const absl::StatusOr<uint64_t> digest = node_.gpu(from.gpu).Digest(from.address, bytes);
  if (!digest.ok()) return digest.status();
  const Key key{.uid = account.uid(), .gpu = from.gpu, .bytes = bytes, .digest = *digest};
  absl::StatusOr<Entries::iterator> entry = Find(key, from);
  if (entry.ok() && *entry == entries_.end()) entry = Add(account, from, bytes);
  if (!entry.ok()) return entry.status();
  Entry& held = (*entry)->second;
  Counters& counters = counters_[static_cast<size_t>(from.gpu)];
  (held.holders.empty() ? counters.held : counters.saved)
      .fetch_add(held.allocation.bytes, std::memory_order_relaxed);
  held.holders.push_back(session);
  return Holding(*entry);
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

absl::StatusOr<SealedMemory::Entries::iterator> SealedMemory::Add(Account& account,
                                                                  const Allocation& from,
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
  const auto entry =
      entries_.emplace(key, Entry{.allocation = *copy, .account = &account, .holders = {}});
  std::move(give_back).Cancel();
  return entry;
}

std::optional<uint32_t> SealedMemory::Release(const Holding& holding) {
  Entry& entry = holding.entry_->second;
  const bool first = !holding.shared();
  entry.holders.erase(holding.holder_);
  Counters& counters = counters_[static_cast<size_t>(entry.allocation.gpu)];
  (entry.holders.empty() ? counters.held : counters.saved)
      .fetch_sub(entry.allocation.bytes, std::memory_order_relaxed);
  if (!entry.holders.empty()) return first ? std::optional(entry.holders.front()) : std::nullopt;
  FreeOwn(node_.gpu(entry.allocation.gpu), *entry.account, entry.allocation);
  entries_.erase(holding.entry_);
  return std::nullopt;
}

SealedMemory::Bytes SealedMemory::bytes(int gpu) const {
  const Counters& counters = counters_[static_cast<size_t>(gpu)];
  return {.held = counters.held.load(std::memory_order_relaxed),
          .saved = counters.saved.load(std::memory_order_relaxed)};
}

}  // namespace concert::daemon
