#include "daemon/sched/launched_collectives.h"

#include <algorithm>

namespace concert::daemon {

void LaunchedCollectives::Add(std::span<const RankPart> parts, const CollectivePlan& plan,
                              uint32_t uid, policies::Time launched_at) {
  const Op& op = *parts.front().op;
  Entry& entry = entries_[added_++ % kKept];
  entry.collective = {.communicator = op.collective.communicator >> 8,  // of a handle
                      .ranks = static_cast<uint32_t>(parts.size()),
                      .uid = uid,
                      .sequence = op.collective.sequence,
                      .kind = op.kind,
                      .bytes = op.collective.count * policies::DtypeBytes(op.collective.dtype),
                      .running = true,
                      .parts_there = static_cast<uint32_t>(parts.size()),
                      .since = launched_at,
                      .choice = plan.choice,
                      .run_ns = plan.reservation.run_ns};
  entry.part_count = std::min(parts.size(), kMaxParts);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const RankPart& part = parts[rank];
    const size_t lane = CollectiveEnds::Index(part.lane);
    const uint64_t number = ++launched_[static_cast<size_t>(part.gpu)][lane];
    if (rank < kMaxParts) entry.parts[rank] = {part.gpu, part.lane, number};
  }
}

bool LaunchedCollectives::Runs(const Entry& entry) const {
  return std::any_of(
      entry.parts.begin(), entry.parts.begin() + entry.part_count, [&](const Part& part) {
        const CollectiveEnds& ends = *ends_[static_cast<size_t>(part.gpu)];
        return ends.by_lane[CollectiveEnds::Index(part.lane)].load(std::memory_order_relaxed) <
               part.number;
      });
}

void LaunchedCollectives::Report(CollectiveReport& report) const {
  if (ends_.empty()) return;
  for (uint64_t i = added_ - std::min<uint64_t>(added_, kKept); i < added_; ++i) {
    const Entry& entry = entries_[i % kKept];
    if (!Runs(entry)) continue;
    if (report.full() || report.ranks.size() + entry.part_count > CollectiveReport::kMaxRanks) {
      report.cut = true;
      return;
    }
    ReportedCollective& collective = report.collectives.emplace_back(entry.collective);
    collective.first_rank = report.ranks.size();
    collective.rank_count = entry.part_count;
    for (size_t rank = 0; rank < entry.part_count; ++rank) {
      report.ranks.push_back({.rank = static_cast<uint32_t>(rank),
                              .state = ReportedRank::State::kThere,
                              .gpu = entry.parts[rank].gpu});
    }
  }
}

}  // namespace concert::daemon
