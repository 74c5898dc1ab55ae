#include "daemon/sched/rendezvous.h"

#include <algorithm>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

using kernels::Failure;

bool Overlap(Address a, uint64_t a_bytes, Address b, uint64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

// Two ranks whose memory overlaps would race on it.
Failure CheckMemory(const Op& a, uint32_t rank_a, const Op& b, uint32_t rank_b) {
  const kernels::CollectiveArgs& x = a.collective;
  const kernels::CollectiveArgs& y = b.collective;
  if (Overlap(x.dst, x.dst_bytes, y.dst, y.dst_bytes) ||
      Overlap(x.dst, x.dst_bytes, y.src, y.src_bytes) ||
      Overlap(x.src, x.src_bytes, y.dst, y.dst_bytes)) {
    return kernels::InvalidArgument(CONCERT_MESSAGE_RANKS_SHARE_MEMORY, CONCERT_FIELD_DST, rank_a,
                                    rank_b);
  }
  return {};
}

}  // namespace

void Rendezvous::Join(uint32_t id, uint32_t rank, uint32_t ranks) {
  Communicator& communicator = communicators_[id];
  if (communicator.joined.empty()) {
    communicator.joined.resize(ranks);
    communicator.left.resize(ranks);
  }
  CONCERT_CHECK(rank < communicator.joined.size() && !communicator.joined[rank]);
  communicator.joined[rank] = true;
  ++communicator.present;
}

void Rendezvous::Leave(uint32_t id, uint32_t rank, Outcomes& out) {
  const auto found = communicators_.find(id);
  if (found == communicators_.end()) return;
  Communicator& communicator = found->second;
  if (communicator.left[rank]) return;
  communicator.left[rank] = true;
  communicator.broken = {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {rank, id}};
  for (auto& [sequence, open] : communicator.open) Fail(open, communicator.broken, out);
  communicator.open.clear();
  // A rank whose joining failed leaves without having joined.
  if (communicator.joined[rank] && --communicator.present == 0) communicators_.erase(found);
}

Rendezvous::Open* Rendezvous::FindOrOpen(Communicator& communicator, uint64_t sequence,
                                         policies::Time now) {
  const auto found = communicator.open.find(sequence);
  if (found != communicator.open.end()) return &found->second;
  if (communicator.open.size() >= options_.max_open) return nullptr;
  Open* open;
  if (communicator.spare.empty()) {
    open = &communicator.open[sequence];
  } else {
    auto node = std::move(communicator.spare.back());
    communicator.spare.pop_back();
    node.key() = sequence;
    open = &communicator.open.insert(std::move(node)).position->second;
  }
  open->parts.assign(communicator.joined.size(), Part{});
  open->seen.assign(communicator.joined.size(), false);
  open->settled = 0;
  open->first_arrival = now;
  open->failure = {};
  return open;
}

void Rendezvous::Arrive(uint32_t id, uint32_t rank, const Part& part, policies::Time now,
                        Outcomes& out) {
  const auto found = communicators_.find(id);
  if (found == communicators_.end()) {
    out.failed.push_back({part, {CONCERT_ABI_NOT_FOUND, CONCERT_MESSAGE_NO_COMMUNICATOR, {id}}});
    return;
  }
  Communicator& communicator = found->second;
  if (const Failure& why = closed_.ok() ? communicator.broken : closed_; !why.ok()) {
    out.failed.push_back({part, why});
    return;
  }
  const uint64_t sequence = part.op->collective.sequence;
  Open* open = FindOrOpen(communicator, sequence, now);
  if (open == nullptr) {
    // Only a rank that has fallen max_open ops behind can cause this.
    out.failed.push_back(
        {part, MissingRank(id, communicator, communicator.open.begin()->second, sequence)});
    return;
  }
  CONCERT_CHECK(!open->seen[rank]);  // admission hands out each sequence number once
  if (!open->failure.ok()) {
    out.failed.push_back({part, open->failure});
    Settle(communicator, sequence, *open, rank);
    return;
  }
  open->parts[rank] = part;
  ++open_parts_;
  const Failure disagreement = Compare(*open, rank);
  if (!disagreement.ok()) Fail(*open, disagreement, out);
  const bool complete = open->settled + 1 == open->parts.size() && open->failure.ok();
  if (complete) {
    open_parts_ -= open->parts.size();
    out.matched.push_back({.first = out.parts.size(), .count = open->parts.size()});
    out.parts.insert(out.parts.end(), open->parts.begin(), open->parts.end());
  }
  Settle(communicator, sequence, *open, rank);
}

void Rendezvous::Refuse(uint32_t id, uint32_t rank, uint64_t sequence, policies::Time now,
                        Outcomes& out) {
  const auto found = communicators_.find(id);
  if (found == communicators_.end() || !found->second.broken.ok()) return;
  Open* open = FindOrOpen(found->second, sequence, now);
  if (open == nullptr || open->seen[rank]) return;
  Fail(*open, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_REFUSED, {rank, sequence, id}}, out);
  Settle(found->second, sequence, *open, rank);
}

// Counts the rank's part as dealt with; an op that every rank has dealt with is closed.
void Rendezvous::Settle(Communicator& communicator, uint64_t sequence, Open& open, uint32_t rank) {
  open.seen[rank] = true;
  if (++open.settled == communicator.joined.size()) {
    communicator.spare.push_back(communicator.open.extract(sequence));
  }
}

// Fails the parts that are there; those that come later find the failure.
void Rendezvous::Fail(Open& open, const Failure& failure, Outcomes& out) {
  if (open.failure.ok()) open.failure = failure;
  for (Part& part : open.parts) {
    if (part.op == nullptr) continue;
    out.failed.push_back({part, open.failure});
    part = {};
    --open_parts_;
  }
}

// Compares `rank`'s part with those that are there.
Failure Rendezvous::Compare(const Open& open, uint32_t rank) {
  const Op& mine = *open.parts[rank].op;
  for (uint32_t other = 0; other < open.parts.size(); ++other) {
    if (other == rank || open.parts[other].op == nullptr) continue;
    const Op& theirs = *open.parts[other].op;
    const kernels::CollectiveArgs& a = mine.collective;
    const kernels::CollectiveArgs& b = theirs.collective;
    if (mine.kind != theirs.kind || a.count != b.count || a.dtype != b.dtype ||
        a.reduction != b.reduction || a.root != b.root) {
      return kernels::InvalidArgument(CONCERT_MESSAGE_COLLECTIVE_MISMATCH, rank, mine.kind, a.count,
                                      other, a.sequence);
    }
    const Failure shared = CheckMemory(theirs, other, mine, rank);
    if (!shared.ok()) return shared;
  }
  return {};
}

Failure Rendezvous::MissingRank(uint32_t id, const Communicator& communicator, const Open& open,
                                uint64_t sequence) const {
  const uint64_t timeout_ms = static_cast<uint64_t>(options_.timeout_ns / 1'000'000);
  for (uint32_t rank = 0; rank < open.seen.size(); ++rank) {
    if (!communicator.joined[rank]) {
      return {
          CONCERT_ABI_DEADLINE_EXCEEDED, CONCERT_MESSAGE_RANK_NOT_JOINED, {rank, id, timeout_ms}};
    }
    if (!open.seen[rank]) {
      return {CONCERT_ABI_DEADLINE_EXCEEDED,
              CONCERT_MESSAGE_RANK_MISSING,
              {rank, id, sequence, timeout_ms}};
    }
  }
  CONCERT_CHECK(false);  // an open op misses a rank
}

void Rendezvous::Expire(policies::Time now, Outcomes& out) {
  for (auto& [id, communicator] : communicators_) {
    for (auto& [sequence, open] : communicator.open) {
      if (!open.failure.ok() || now - open.first_arrival < options_.timeout_ns) continue;
      Fail(open, MissingRank(id, communicator, open, sequence), out);
    }
  }
}

void Rendezvous::FailAll(const Failure& failure, Outcomes& out) {
  closed_ = failure;
  for (auto& [id, communicator] : communicators_) {
    for (auto& [sequence, open] : communicator.open) Fail(open, failure, out);
  }
}

}  // namespace concert::daemon
