#include "daemon/session/sealed_memory.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "daemon/session/own_memory.h"

namespace concert::daemon {

absl::StatusOr<SealedMemory::Kept> SealedMemory::Keep(Account& account, const Allocation& from,
                                                      uint64_t bytes) {
  const absl::StatusOr<uint64_t> digest = node_.gpu(from.gpu).Digest(from.address, bytes);
  if (!digest.ok()) return digest.status();
  const Key key{.uid = account.uid(), .gpu = from.gpu, .bytes = bytes, .digest = *digest};
  const absl::StatusOr<std::optional<Kept>> found = Find(key, from);
  if (!found.ok()) return found.status();
  if (found->has_value()) return **found;
  return Add(account, from, bytes);
}

absl::StatusOr<std::optional<SealedMemory::Kept>> SealedMemory::Find(const Key& key,
                                                                     const Allocation& from) {
  absl::StatusOr<std::optional<Kept>> found = std::optional<Kept>();
  for (const Entries::iterator entry : Candidates(key)) {
    if (found.ok() && !found->has_value()) {
      const absl::StatusOr<bool> same =
          node_.gpu(key.gpu).Same(from.address, entry->second.allocation.address, key.bytes);
      if (!same.ok()) found = same.status();
      if (same.ok() && *same) {
        found = Kept(entry);
        continue;
      }
    }
    EndUse(entry);
  }
  return found;
}

std::vector<SealedMemory::Entries::iterator> SealedMemory::Candidates(const Key& key) {
  std::vector<Entries::iterator> candidates;
  const MutexLock lock(mutex_);
  const auto [begin, end] = entries_.equal_range(key);
  for (auto entry = begin; entry != end && candidates.size() < kMaxCompared; ++entry) {
    ++entry->second.uses;
    candidates.push_back(entry);
  }
  return candidates;
}

absl::StatusOr<SealedMemory::Kept> SealedMemory::Add(Account& account, const Allocation& from,
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
  std::move(give_back).Cancel();
  const MutexLock lock(mutex_);
  return Kept(entries_.emplace(
      key, Entry{.allocation = *copy, .account = &account, .holders = {}, .uses = 1}));
}

SealedMemory::Holding SealedMemory::Hold(const Kept& kept, uint32_t session) {
  Entry& entry = kept.entry_->second;
  Counters& counters = counters_[static_cast<size_t>(entry.allocation.gpu)];
  (entry.holders.empty() ? counters.held : counters.saved)
      .fetch_add(entry.allocation.bytes, std::memory_order_relaxed);
  entry.holders.push_back(session);
  return Holding(kept.entry_);
}

std::optional<uint32_t> SealedMemory::Release(const Holding& holding) {
  Entry& entry = holding.entry_->second;
  const bool first = !holding.shared();
  entry.holders.erase(holding.holder_);
  Counters& counters = counters_[static_cast<size_t>(entry.allocation.gpu)];
  (entry.holders.empty() ? counters.held : counters.saved)
      .fetch_sub(entry.allocation.bytes, std::memory_order_relaxed);
  const std::optional<uint32_t> heir =
      first && !entry.holders.empty() ? std::optional(entry.holders.front()) : std::nullopt;
  EndUse(holding.entry_);
  return heir;
}

void SealedMemory::EndUse(Entries::iterator entry) {
  Entries::node_type unused;
  {
    const MutexLock lock(mutex_);
    if (--entry->second.uses > 0) return;
    unused = entries_.extract(entry);
  }
  const Entry& freed = unused.mapped();
  FreeOwn(node_.gpu(freed.allocation.gpu), *freed.account, freed.allocation);
}

size_t SealedMemory::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

SealedMemory::Bytes SealedMemory::bytes(int gpu) const {
  const Counters& counters = counters_[static_cast<size_t>(gpu)];
  return {.held = counters.held.load(std::memory_order_relaxed),
          .saved = counters.saved.load(std::memory_order_relaxed)};
}

}  // namespace concert::daemon
