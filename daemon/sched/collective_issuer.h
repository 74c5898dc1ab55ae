// The thread that launches collectives: it owns the rendezvous and is the only caller of
// Node::LaunchCollective, so that every GPU sees one order.
#ifndef CONCERT_DAEMON_SCHED_COLLECTIVE_ISSUER_H_
#define CONCERT_DAEMON_SCHED_COLLECTIVE_ISSUER_H_

#include <atomic>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "daemon/config/defaults.h"
#include "daemon/device/device.h"
#include "daemon/sched/launched_collectives.h"
#include "daemon/sched/messages.h"
#include "daemon/sched/outbox.h"
#include "daemon/sched/rendezvous.h"

namespace concert::daemon {

class CollectiveIssuer {
 public:
  struct Options {
    Rendezvous::Options rendezvous;
    std::optional<policies::Transport> transport;  // the only one; none: the best
    int64_t spin_ns = defaults::kSpinUs * 1'000;
  };

  CollectiveIssuer(const Options& options, Node& node);
  ~CollectiveIssuer();

  // `dispatchers` by GPU: where outcomes go; `ends`: what they count. They outlive the thread.
  // Without `ends` nothing that was launched is reported.
  void Start(std::vector<DispatcherMailbox*> dispatchers,
             std::vector<const CollectiveEnds*> ends = {});
  void Stop();

  IssuerMailbox& mailbox() { return mailbox_; }

  // One turn of the loop, for tests. True if it did anything.
  bool Turn(policies::Time now);

 private:
  void Run();
  void Handle(const IssuerMessage& message, policies::Time now);
  void Launch(const Rendezvous::Matched& matched);
  void Fail(const RankPart& part, const kernels::Failure& failure);
  void TellNews(policies::Time now);
  void Report(CollectiveReport& report, policies::Time now);
  void Answer(int gpu, const DispatcherMessage& message);
  bool AnswersAreLate() const;

  const Options options_;
  Node& node_;
  IssuerMailbox mailbox_;
  std::vector<DispatcherMailbox*> dispatchers_;
  std::vector<Outbox<DispatcherMessage>> answers_;  // by GPU
  Rendezvous rendezvous_;
  Coordinator coordinator_;
  LaunchedCollectives launched_;
  CollectiveLeaseHolder* lease_holder_ = nullptr;
  Rendezvous::Outcomes outcomes_;
  policies::Time next_expiry_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_COLLECTIVE_ISSUER_H_
