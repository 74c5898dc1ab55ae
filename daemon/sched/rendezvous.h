// Where the ranks of a collective meet. Parts are matched by communicator and sequence number; when
// all ranks' parts are there and agree they are handed on together, so that no SM ever spins for a
// late process. Ranks that disagree, leave, refuse or are late make every rank's part fail with a
// sentence that says who. A pure state machine: no threads, no clock, no device.
//
// What it holds is charged to the communicator's user: parts that wait by who offers them
// (Resource::kParts), here what must be remembered of an op that failed until its last rank has
// come (kRefusals), and a rank's place until it has left (kMemberships, which the control thread
// charges). When a user's refusals are used up, its communicator that asks for one more fails.
#ifndef CONCERT_DAEMON_SCHED_RENDEZVOUS_H_
#define CONCERT_DAEMON_SCHED_RENDEZVOUS_H_

#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/config/defaults.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/sched/collective_report.h"
#include "daemon/sched/op_pool.h"
#include "kernels/failure.h"

namespace concert::daemon {

class Rendezvous {
 public:
  static constexpr uint32_t kMaxRanks = 255;  // the rank is the low byte of a handle

  struct Options {
    // From the first part's arrival to the last's.
    policies::Time timeout_ns = defaults::kCollectiveTimeoutMs * 1'000'000;
  };

  // What became of parts: all ranks' parts in rank order, to be launched together; or one part that
  // failed.
  struct Matched {
    size_t first = 0, count = 0;  // of Outcomes::parts
    uint32_t uid = 0;             // of all ranks
  };
  struct Failed {
    RankPart part;
    kernels::Failure failure;
  };
  // So many ranks' parts are there, this one among them; the others are missing.
  struct News {
    RankPart part;
    uint8_t ranks_there = 0;
  };
  // Used again and again, so that in steady state nothing here allocates.
  struct Outcomes {
    std::vector<Matched> matched;
    std::vector<RankPart> parts;
    std::vector<Failed> failed;
    std::vector<News> news;
    std::span<const RankPart> PartsOf(const Matched& match) const {
      return {parts.data() + match.first, match.count};
    }
    void Clear() {
      matched.clear();
      parts.clear();
      failed.clear();
      news.clear();
    }
  };

  explicit Rendezvous(const Options& options) : options_(options) {}

  // Events. Those with `out` append to it.

  // Where a rank is; 0 and -1: it has not joined.
  struct Place {
    uint32_t session = 0;
    int gpu = -1;
  };

  // `account` has been charged with the membership; ranks of a communicator have one user.
  void Join(uint32_t communicator, uint32_t rank, uint32_t ranks, Account& account, Place place);
  // The rank is gone: every open (LetGo) and later op that needs it fails. The communicator ends
  // with its last rank.
  void Leave(uint32_t communicator, uint32_t rank);
  void Arrive(uint32_t communicator, uint32_t rank, const RankPart& part, policies::Time now,
              Outcomes& out);
  // The rank's part of `sequence` failed before it could arrive.
  void Refuse(uint32_t communicator, uint32_t rank, uint64_t sequence, policies::Time now,
              Outcomes& out);
  // Fails what has waited too long, naming a rank that is missing: at most so many ops, true if
  // there are more.
  bool Expire(policies::Time now, uint32_t most, Outcomes& out);
  // Fails the ops of communicators that are over, and forgets those that have failed: at most so
  // many, and parts that wait for them, but for the last one's; true if there are more.
  bool LetGo(uint32_t most, Outcomes& out);
  // Gives back every part (LetGo), those that come later at once.
  void FailAll(const kernels::Failure& failure);

  // Appends news for the parts of ops that have gained ranks since the last call and still wait:
  // one for each part, however many ranks came.
  void TellNews(Outcomes& out);

  // Appends what waits, the longest first, and how many communicators there are.
  void Report(CollectiveReport& report) const;

  // Whether anything waits, and so Expire is worth calling.
  bool waiting() const { return oldest_ != nullptr; }
  // Ops that are held or remembered, for tests.
  size_t open_count() const;

 private:
  struct RankedPart {
    uint32_t rank = 0;
    RankPart part;
  };
  // One op of a communicator, from its first part to its last. While it may still start it holds
  // parts and is in the list of what waits; once it has failed it only remembers that.
  struct Open {
    uint32_t communicator = 0;
    uint64_t sequence = 0;
    std::vector<RankedPart> parts;        // those that wait, in order of arrival
    std::bitset<kMaxRanks + 1> answered;  // by rank: its part arrived or was refused
    policies::Time first_arrival = 0;
    size_t told = 0;           // how many parts there were by the last news
    bool gained = false;       // it is in gained_
    kernels::Failure failure;  // not ok: every part fails, those that come later too
    bool remembered = false;   // charged as a refusal
    Open *before = nullptr, *after = nullptr;  // in the list of what waits
  };
  using Opens = std::map<uint64_t, Open>;  // by sequence; nodes stay where they are
  struct Communicator {
    Account* account = nullptr;
    std::vector<bool> joined, left;  // by rank
    std::vector<Place> places;       // by rank
    uint32_t present = 0;
    kernels::Failure broken;              // not ok: a rank left, or too much failed
    Opens open;                           // once broken, what LetGo has not come to
    std::vector<Opens::node_type> spare;  // closed, for the ops to come
  };

  Open& FindOrOpen(uint32_t id, Communicator& communicator, uint64_t sequence, policies::Time now);
  // The rank is done with the op; one that every rank is done with is closed.
  void Settle(Communicator& communicator, Open& open, uint32_t rank, Outcomes& out);
  // Fails the parts that are there; those that come later find the failure.
  void Fail(Open& open, const kernels::Failure& failure, Outcomes& out);
  // Keeps a failed op for the ranks to come, or breaks the communicator.
  void Remember(Communicator& communicator, Open& open);
  // From here on parts that come fail, too. What is open LetGo comes to.
  void Break(uint32_t id, Communicator& communicator, const kernels::Failure& why);
  void Gain(Open& open);
  void Wait(Open& open);
  void WaitNoMore(Open& open);
  static kernels::Failure Compare(const Open& open, uint32_t rank, const Op& mine);
  kernels::Failure MissingRank(const Communicator& communicator, const Open& open) const;

  // One that may have gained ranks: by name, since it may be over by the time of the news.
  struct OpenName {
    uint32_t communicator;
    uint64_t sequence;
  };

  const Options options_;
  absl::flat_hash_map<uint32_t, Communicator> communicators_;
  kernels::Failure closed_;                     // not ok: FailAll was called
  Open *oldest_ = nullptr, *newest_ = nullptr;  // what waits, by first_arrival
  std::vector<OpenName> gained_;
  std::deque<uint32_t> over_;  // communicators with something open that are broken
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_RENDEZVOUS_H_
