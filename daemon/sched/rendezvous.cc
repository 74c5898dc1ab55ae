#include "daemon/sched/rendezvous.h"

#include <algorithm>
#include <utility>

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

// Closed ops that a communicator keeps: as many as its ranks are usually ahead of each other, so
// that they are opened again without allocating.
constexpr size_t kMaxSpare = 4;

// News go to every part that waits. Told of each rank, n parts would cost n * n messages; told when
// their number has grown by an eighth, and of the last but one, they cost some ten each. Up to
// eight are told of each.
constexpr size_t kPartOfNews = 8;
bool WorthTelling(size_t told, size_t there, size_t ranks) {
  return there > told && ((there - told) * kPartOfNews >= told || there + 1 == ranks);
}

}  // namespace

void Rendezvous::Join(uint32_t id, uint32_t rank, uint32_t ranks, Account& account, Place place) {
  Communicator& communicator = communicators_[id];
  if (communicator.account == nullptr) {
    CONCERT_CHECK(ranks <= kMaxRanks);
    communicator.account = &account;
    communicator.joined.resize(ranks);
    communicator.left.resize(ranks);
    communicator.places.resize(ranks);
  }
  CONCERT_CHECK(rank < communicator.joined.size() && !communicator.joined[rank]);
  communicator.joined[rank] = true;
  communicator.places[rank] = place;
  ++communicator.present;
}

void Rendezvous::Leave(uint32_t id, uint32_t rank) {
  const auto found = communicators_.find(id);
  if (found == communicators_.end()) return;
  Communicator& communicator = found->second;
  if (communicator.left[rank]) return;
  communicator.left[rank] = true;
  Break(id, communicator, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {rank, id}});
  // A rank whose joining failed leaves without having joined.
  if (!communicator.joined[rank]) return;
  communicator.account->Release(Resource::kMemberships);
  if (--communicator.present == 0 && communicator.open.empty()) communicators_.erase(found);
}

Rendezvous::Open& Rendezvous::FindOrOpen(uint32_t id, Communicator& communicator, uint64_t sequence,
                                         policies::Time now) {
  const auto found = communicator.open.find(sequence);
  if (found != communicator.open.end()) return found->second;
  Open* open;
  if (communicator.spare.empty()) {
    open = &communicator.open[sequence];
  } else {
    Opens::node_type node = std::move(communicator.spare.back());
    communicator.spare.pop_back();
    node.key() = sequence;
    open = &communicator.open.insert(std::move(node)).position->second;
  }
  open->communicator = id;
  open->sequence = sequence;
  open->parts.clear();
  open->answered.reset();
  open->first_arrival = now;
  open->told = 1;  // who offers a part knows of it
  open->gained = false;
  open->failure = {};
  open->remembered = false;
  Wait(*open);
  return *open;
}

void Rendezvous::Arrive(uint32_t id, uint32_t rank, const RankPart& part, policies::Time now,
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
  Open& open = FindOrOpen(id, communicator, part.op->collective.sequence, now);
  CONCERT_CHECK(!open.answered[rank]);  // admission hands out each sequence number once
  if (!open.failure.ok()) {
    out.failed.push_back({part, open.failure});
  } else {
    const Failure disagreement = Compare(open, rank, *part.op);
    open.parts.push_back({rank, part});
    if (!disagreement.ok()) Fail(open, disagreement, out);
  }
  Settle(communicator, open, rank, out);
}

void Rendezvous::Refuse(uint32_t id, uint32_t rank, uint64_t sequence, policies::Time now,
                        Outcomes& out) {
  const auto found = communicators_.find(id);
  if (found == communicators_.end() || !found->second.broken.ok() || !closed_.ok()) return;
  Open& open = FindOrOpen(id, found->second, sequence, now);
  if (open.answered[rank]) return;
  Fail(open, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_REFUSED, {rank, sequence, id}}, out);
  Settle(found->second, open, rank, out);
}

void Rendezvous::Settle(Communicator& communicator, Open& open, uint32_t rank, Outcomes& out) {
  open.answered[rank] = true;
  const size_t ranks = communicator.joined.size();
  if (open.answered.count() < ranks) {
    if (open.failure.ok()) {
      Gain(open);
    } else {
      Remember(communicator, open);
    }
    return;
  }
  if (open.failure.ok()) {
    const size_t first = out.parts.size();
    out.matched.push_back({.first = first, .count = ranks, .uid = communicator.account->uid()});
    out.parts.resize(first + ranks);
    for (const RankedPart& ranked : open.parts) out.parts[first + ranked.rank] = ranked.part;
    WaitNoMore(open);
  } else if (open.remembered) {
    communicator.account->Release(Resource::kRefusals);
  }
  Opens::node_type node = communicator.open.extract(open.sequence);
  if (communicator.spare.size() < kMaxSpare) communicator.spare.push_back(std::move(node));
}

void Rendezvous::Fail(Open& open, const Failure& failure, Outcomes& out) {
  if (!open.failure.ok()) return;
  open.failure = failure;
  WaitNoMore(open);
  for (const RankedPart& ranked : open.parts) out.failed.push_back({ranked.part, failure});
  open.parts = {};  // with its memory
}

void Rendezvous::Remember(Communicator& communicator, Open& open) {
  if (open.remembered) return;
  open.remembered = communicator.account->TryCharge(Resource::kRefusals);
  if (open.remembered) return;
  Break(open.communicator, communicator,
        {CONCERT_ABI_RESOURCE_EXHAUSTED,
         CONCERT_MESSAGE_TOO_MANY_REFUSALS,
         {open.communicator, communicator.account->limit(Resource::kRefusals).per_user}});
}

void Rendezvous::Break(uint32_t id, Communicator& communicator, const Failure& why) {
  if (communicator.broken.ok() && !communicator.open.empty()) over_.push_back(id);
  communicator.broken = why;
  communicator.spare.clear();
}

bool Rendezvous::LetGo(uint32_t most, Outcomes& out) {
  for (; !over_.empty(); over_.pop_front()) {
    const auto found = communicators_.find(over_.front());
    Communicator& communicator = found->second;
    while (!communicator.open.empty()) {
      if (most == 0) return true;
      const auto first = communicator.open.begin();
      Open& open = first->second;
      most -= std::min(most, 1 + static_cast<uint32_t>(open.parts.size()));
      Fail(open, communicator.broken, out);
      if (open.remembered) communicator.account->Release(Resource::kRefusals);
      communicator.open.erase(first);
    }
    if (communicator.present == 0) communicators_.erase(found);
  }
  return false;
}

void Rendezvous::Gain(Open& open) {
  if (open.gained) return;
  open.gained = true;
  gained_.push_back({open.communicator, open.sequence});
}

void Rendezvous::TellNews(Outcomes& out) {
  for (const OpenName& name : gained_) {
    const auto communicator = communicators_.find(name.communicator);
    if (communicator == communicators_.end() || !communicator->second.broken.ok()) continue;
    const auto found = communicator->second.open.find(name.sequence);
    if (found == communicator->second.open.end()) continue;
    Open& open = found->second;
    open.gained = false;
    const size_t there = open.parts.size();
    if (!WorthTelling(open.told, there, communicator->second.joined.size())) continue;
    open.told = there;
    for (const RankedPart& ranked : open.parts) {
      out.news.push_back({ranked.part, static_cast<uint8_t>(there)});
    }
  }
  gained_.clear();
}

void Rendezvous::Wait(Open& open) {
  open.before = newest_;
  open.after = nullptr;
  (newest_ != nullptr ? newest_->after : oldest_) = &open;
  newest_ = &open;
}

void Rendezvous::WaitNoMore(Open& open) {
  (open.before != nullptr ? open.before->after : oldest_) = open.after;
  (open.after != nullptr ? open.after->before : newest_) = open.before;
}

// Compares `rank`'s part with those that are there.
Failure Rendezvous::Compare(const Open& open, uint32_t rank, const Op& mine) {
  for (const RankedPart& other : open.parts) {
    const Op& theirs = *other.part.op;
    const kernels::CollectiveArgs& a = mine.collective;
    const kernels::CollectiveArgs& b = theirs.collective;
    if (mine.kind != theirs.kind || a.count != b.count || a.dtype != b.dtype ||
        a.reduction != b.reduction || a.root != b.root) {
      return kernels::InvalidArgument(CONCERT_MESSAGE_COLLECTIVE_MISMATCH, rank, mine.kind, a.count,
                                      other.rank, a.sequence);
    }
    const Failure shared = CheckMemory(theirs, other.rank, mine, rank);
    if (!shared.ok()) return shared;
  }
  return {};
}

Failure Rendezvous::MissingRank(const Communicator& communicator, const Open& open) const {
  const uint64_t timeout_ms = static_cast<uint64_t>(options_.timeout_ns / 1'000'000);
  for (uint32_t rank = 0; rank < communicator.joined.size(); ++rank) {
    if (!communicator.joined[rank]) {
      return {CONCERT_ABI_DEADLINE_EXCEEDED,
              CONCERT_MESSAGE_RANK_NOT_JOINED,
              {rank, open.communicator, timeout_ms}};
    }
    if (!open.answered[rank]) {
      return {CONCERT_ABI_DEADLINE_EXCEEDED,
              CONCERT_MESSAGE_RANK_MISSING,
              {rank, open.communicator, open.sequence, timeout_ms}};
    }
  }
  CONCERT_CHECK(false);  // an open op misses a rank
}

bool Rendezvous::Expire(policies::Time now, uint32_t most, Outcomes& out) {
  for (; oldest_ != nullptr && now - oldest_->first_arrival >= options_.timeout_ns; --most) {
    if (most == 0) return true;
    Open& open = *oldest_;
    Communicator& communicator = communicators_.at(open.communicator);
    if (!communicator.broken.ok()) {
      Fail(open, communicator.broken, out);
      continue;
    }
    Fail(open, MissingRank(communicator, open), out);
    Remember(communicator, open);
  }
  return false;
}

void Rendezvous::FailAll(const Failure& failure) {
  closed_ = failure;
  for (auto& [id, communicator] : communicators_) Break(id, communicator, failure);
}

void Rendezvous::Report(CollectiveReport& report) const {
  report.communicators = communicators_.size();
  for (const Open* open = oldest_; open != nullptr; open = open->after) {
    const Communicator& communicator = communicators_.at(open->communicator);
    const size_t ranks = communicator.joined.size();
    if (report.full() || report.ranks.size() + ranks > CollectiveReport::kMaxRanks) {
      report.cut = true;
      return;
    }
    const Op& op = *open->parts.front().part.op;
    report.collectives.push_back(
        {.communicator = open->communicator,
         .ranks = static_cast<uint32_t>(ranks),
         .uid = communicator.account->uid(),
         .sequence = open->sequence,
         .kind = op.kind,
         .bytes = op.collective.count * policies::DtypeBytes(op.collective.dtype),
         .parts_there = static_cast<uint32_t>(open->parts.size()),
         .since = open->first_arrival,
         .first_rank = report.ranks.size(),
         .rank_count = ranks});
    for (size_t rank = 0; rank < ranks; ++rank) {
      using State = ReportedRank::State;
      const Place& place = communicator.places[rank];
      const State missing = communicator.joined[rank] ? State::kMissing : State::kNotJoined;
      report.ranks.push_back({.rank = static_cast<uint32_t>(rank),
                              .state = open->answered[rank] ? State::kThere : missing,
                              .gpu = place.gpu,
                              .session = place.session});
    }
  }
}

size_t Rendezvous::open_count() const {
  size_t count = 0;
  for (const auto& [id, communicator] : communicators_) count += communicator.open.size();
  return count;
}

}  // namespace concert::daemon
