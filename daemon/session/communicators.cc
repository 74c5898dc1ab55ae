#include "daemon/session/communicators.h"

#include "absl/strings/str_cat.h"

namespace concert::daemon {

absl::StatusOr<Communicators::Joined> Communicators::Join(uint32_t uid, const std::string& name,
                                                          uint32_t rank, uint32_t ranks, int gpu) {
  if (name.empty())
    return absl::InvalidArgumentError("name is empty; ranks meet under a common name");
  if (ranks < 1 || ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks is ", ranks, "; it must be between 1 and ", kMaxRanks));
  }
  if (rank >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", rank, "; it must be below ranks (", ranks, ")"));
  }
  auto [entry, added] = by_name_.try_emplace({uid, name}, next_);
  if (added) {
    // Numbers share a 32-bit handle with the rank, so after 2^24 they start again. Some are always
    // free, since sessions and their communicators are counted.
    while (next_ == 0 || communicators_.contains(next_)) next_ = (next_ + 1) & 0xffffff;
    entry->second = next_;
    communicators_[next_] = {.key = entry->first, .gpu_of_rank = std::vector<int>(ranks, -1)};
    next_ = (next_ + 1) & 0xffffff;
  }
  const uint32_t id = entry->second;
  Communicator& communicator = communicators_[id];
  if (communicator.gpu_of_rank.size() != ranks) {
    return absl::InvalidArgumentError(absl::StrCat("ranks is ", ranks, ", but communicator '", name,
                                                   "' has ", communicator.gpu_of_rank.size()));
  }
  if (communicator.gpu_of_rank[rank] >= 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("rank ", rank, " of communicator '", name, "' is taken"));
  }
  communicator.gpu_of_rank[rank] = gpu;
  ++communicator.joined;
  ++communicator.present;
  Joined joined{.communicator = id, .complete = communicator.joined == ranks};
  if (joined.complete) joined.gpus = communicator.gpu_of_rank;
  return joined;
}

void Communicators::Leave(uint32_t id) {
  const auto found = communicators_.find(id);
  if (found == communicators_.end()) return;
  Communicator& communicator = found->second;
  if (communicator.open) by_name_.erase(communicator.key);
  communicator.open = false;
  if (--communicator.present == 0) communicators_.erase(found);
}

}  // namespace concert::daemon
