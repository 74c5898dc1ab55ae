// A dispatcher that has no thread, and one session whose client is whoever holds it: for measuring
// what the dispatcher takes, or what it does in a time of one's own making.
#ifndef CONCERT_TESTS_BENCH_DISPATCHER_BED_H_
#define CONCERT_TESTS_BENCH_DISPATCHER_BED_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/sched/dispatcher.h"
#include "daemon/session/session_memory.h"
#include "policies/policy.h"
#include "tests/bench/scenario_file.h"

namespace concert::bench {

// Real rings in shared memory, admission, scheduler and records. Not thread-safe.
class DispatcherBed {
 public:
  // `gpu` must outlive this. `policy`: one that policies::FindPolicy knows. `queues`: of normal
  // priority.
  DispatcherBed(daemon::Device& gpu, const std::string& policy,
                const daemon::DispatcherOptions& options, uint32_t queues);
  ~DispatcherBed();
  DispatcherBed(const DispatcherBed&) = delete;
  DispatcherBed& operator=(const DispatcherBed&) = delete;

  static constexpr uint64_t kMaxGemms = 64, kMaxSets = 64;
  static constexpr uint64_t kMatrixBytes = uint64_t{1} << 30;
  // Whether Submit takes this batch: it has room for kMaxGemms with matrices of kMatrixBytes.
  static bool Takes(std::span<const GemmShape> shapes);
  // A batch: GEMM i on queue `first_queue` + i, with operands that no other (set, i) has. They are
  // addresses only. REQUIRES: Takes(shapes), set < kMaxSets.
  void Submit(std::span<const GemmShape> shapes, uint32_t first_queue, uint64_t set);

  bool Turn(policies::Time now) { return dispatcher_.Turn(now); }
  // Takes what telemetry would.
  void DrainRecords();

  // Ops admitted and not seen to have ended, as of the last turn.
  uint32_t unfinished() const { return dispatcher_.gauges().unfinished_ops; }
  bool idle() const { return unfinished() == 0; }
  policies::PolicyStats stats() const { return policy_->stats(); }
  // Ops submitted so far.
  uint64_t submitted() const { return tail_; }
  // The ticket of the last op submitted to the queue, and the word that reaches it when it ends.
  uint64_t ticket(uint32_t queue) const { return tickets_[queue]; }
  const uint64_t& timeline(uint32_t queue) const { return memory_->timeline(queue); }

 private:
  void Tell(const daemon::DispatcherMessage& message);

  const int event_fd_;
  std::unique_ptr<daemon::SessionMemory> memory_;
  char* client_ = nullptr;  // the session's memory as its client sees it
  uint64_t client_bytes_ = 0;
  uint64_t tail_ = 0;
  std::vector<uint64_t> tickets_;  // by queue
  daemon::ControlMailbox control_;
  daemon::IssuerMailbox issuer_;
  daemon::RecordRing records_;
  policies::Policy* const policy_;  // the dispatcher's
  daemon::Dispatcher dispatcher_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_DISPATCHER_BED_H_
