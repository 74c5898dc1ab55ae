// A dispatcher that has no thread, and sessions whose clients are whoever holds it: for measuring
// what the dispatcher takes, or what it does in a time of one's own making.
#ifndef CONCERT_TESTS_BENCH_DISPATCHER_BED_H_
#define CONCERT_TESTS_BENCH_DISPATCHER_BED_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/sched/dispatcher.h"
#include "daemon/session/session_memory.h"
#include "policies/seam/policy.h"
#include "tests/bench/scenario_file.h"

namespace concert::bench {

// Real rings in shared memory, admission, scheduler, quotas and records. Not thread-safe.
class DispatcherBed {
 public:
  // `gpu` must outlive this. `policy`: one that policies::FindPolicy knows. `queues`: of normal
  // priority, of the first session.
  DispatcherBed(daemon::Device& gpu, const std::string& policy,
                const daemon::DispatcherOptions& options, uint32_t queues,
                const daemon::Limits& limits = daemon::Limits());
  ~DispatcherBed();
  DispatcherBed(const DispatcherBed&) = delete;
  DispatcherBed& operator=(const DispatcherBed&) = delete;

  static constexpr uint64_t kMaxGemms = 64, kMaxSets = 64;
  static constexpr uint64_t kMatrixBytes = uint64_t{1} << 30;
  // Whether Submit takes this batch: it has room for kMaxGemms with matrices of kMatrixBytes.
  static bool Fits(std::span<const GemmShape> shapes);
  // A batch: GEMM i on queue `first_queue` + i, with operands that no other (set, i) has. They are
  // addresses only. REQUIRES: Fits(shapes), set < kMaxSets.
  void Submit(std::span<const GemmShape> shapes, uint32_t first_queue, uint64_t set);

  // --- Sessions beside the first, which is 0 ---

  // Another session, of user `uid`, with `queues` queues of this priority. Returns its number.
  uint32_t OpenSession(uint32_t uid, uint32_t queues,
                       policies::Priority priority = policies::Priority::kNormal);
  // Its id, which is part of timeline ids.
  static uint32_t IdOf(uint32_t session) { return session + 1; }
  // The session is over: the dispatcher lets go of it in the turns to come.
  void CloseSession(uint32_t session);
  // Writes the op to the session's ring with the next sequence and ticket; Ring publishes.
  void Write(uint32_t session, concert_descriptor op);
  void Ring(uint32_t session);
  // One that nothing is wrong with, but for what the caller adds. Its operands are those of the
  // `place`-th of kMaxSets x kMaxGemms.
  static concert_descriptor Gemm(const GemmShape& shape, uint32_t queue, uint64_t place = 0);
  // Memory of its own, of kMatrixBytes: the `matrix`-th of four of that place.
  static concert_operand Operand(uint64_t place, int matrix);
  // What clients share with the daemon.
  uint64_t& user_timeline(uint32_t session, uint32_t index);
  uint32_t& waiters(uint32_t session, uint32_t queue);
  const daemon::SessionMemory& memory(uint32_t session) const { return *clients_[session].memory; }
  // The session's failures so far, oldest first. Takes them, so that their slots are free again.
  std::vector<concert_completion> TakeFailures(uint32_t session);
  daemon::Account& account(uint32_t uid) { return accounts_.Of(uid); }

  bool Turn(policies::Time now) { return dispatcher_.Turn(now); }
  // Takes what telemetry would.
  void DrainRecords();
  // `visit` is called with each of them.
  template <typename Visit>
  void DrainRecords(Visit visit) {
    records_.Drain(visit);
  }

  // Ops admitted and not seen to have ended, as of the last turn.
  uint32_t unfinished() const { return dispatcher_.gauges().unfinished_ops; }
  bool idle() const { return unfinished() == 0; }
  const daemon::Dispatcher& dispatcher() const { return dispatcher_; }
  daemon::IssuerMailbox& issuer() { return issuer_; }
  daemon::ControlMailbox& control() { return control_; }
  void Tell(const daemon::DispatcherMessage& message);
  policies::PolicyStats stats() const { return policy_->stats(); }
  // Ops of all sessions submitted so far.
  uint64_t submitted() const { return submitted_; }
  // The ticket of the last op submitted to the queue, and the word that reaches it when it ends.
  uint64_t ticket(uint32_t queue) const { return clients_[0].tickets[queue]; }
  const uint64_t& timeline(uint32_t queue) const { return clients_[0].memory->timeline(queue); }

 private:
  struct Client {
    int event_fd = -1;
    std::unique_ptr<daemon::SessionMemory> memory;
    char* region = nullptr;  // the session's memory as its client sees it
    uint64_t bytes = 0;
    uint64_t tail = 0;
    uint64_t failures = 0;          // taken
    std::vector<uint64_t> tickets;  // by queue
  };

  daemon::Accounts accounts_;
  std::vector<Client> clients_;
  uint64_t submitted_ = 0;
  daemon::ControlMailbox control_;
  daemon::IssuerMailbox issuer_;
  daemon::RecordRing records_;
  policies::Policy* const policy_;  // the dispatcher's
  daemon::Dispatcher dispatcher_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_DISPATCHER_BED_H_
