// What the issuer has launched of late, for who asks what runs. On a lane, collectives end in the
// order of their launches, so that a dispatcher need only count its parts that have ended.
#ifndef CONCERT_DAEMON_SCHED_LAUNCHED_COLLECTIVES_H_
#define CONCERT_DAEMON_SCHED_LAUNCHED_COLLECTIVES_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/sched/collective_report.h"
#include "daemon/sched/coordinator.h"

namespace concert::daemon {

// Parts of a GPU that were launched and have ended, on its normal and its high collective lane.
struct CollectiveEnds {
  std::array<std::atomic<uint64_t>, 2> by_lane{};
  std::atomic<uint64_t>& Of(policies::Lane lane) { return by_lane[Index(lane)]; }
  static size_t Index(policies::Lane lane) { return policies::IsHighPriority(lane) ? 1 : 0; }
};

// The issuer's thread.
class LaunchedCollectives {
 public:
  explicit LaunchedCollectives(int gpus) : launched_(static_cast<size_t>(gpus)) {}

  // `ends` by GPU; they outlive this. Empty: nothing is reported.
  void Watch(std::vector<const CollectiveEnds*> ends) { ends_ = std::move(ends); }

  // Parts of one collective, of user `uid`, have been launched so. Allocates nothing.
  void Add(std::span<const RankPart> parts, const CollectivePlan& plan, uint32_t uid,
           policies::Time launched_at);
  // Appends those of which a part has not been seen to end, the oldest first.
  void Report(CollectiveReport& report) const;

 private:
  static constexpr size_t kKept = 256;     // beyond them, what was launched first is forgotten
  static constexpr size_t kMaxParts = 16;  // of one that are looked at: its first ranks

  struct Part {
    int gpu = 0;
    policies::Lane lane = policies::kCollectiveLane;
    uint64_t number = 0;  // counting the lane's parts from 1
  };
  struct Entry {
    ReportedCollective collective;
    std::array<Part, kMaxParts> parts;
    size_t part_count = 0;
  };

  bool Runs(const Entry& entry) const;

  std::vector<std::array<uint64_t, 2>> launched_;  // parts, by GPU and lane
  std::vector<const CollectiveEnds*> ends_;
  std::array<Entry, kKept> entries_;  // a ring
  uint64_t added_ = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_LAUNCHED_COLLECTIVES_H_
