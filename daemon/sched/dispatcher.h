// The thread of one GPU: reads the sessions' rings, admits ops, lets the scheduler decide,
// launches, and watches timelines. Everything it touches it owns or reads as shared memory; others
// reach it through its mailbox.
#ifndef CONCERT_DAEMON_SCHED_DISPATCHER_H_
#define CONCERT_DAEMON_SCHED_DISPATCHER_H_

#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/clock.h"
#include "daemon/config/defaults.h"
#include "daemon/device/device.h"
#include "daemon/sched/company.h"
#include "daemon/sched/executor.h"
#include "daemon/sched/launched_collectives.h"
#include "daemon/sched/messages.h"
#include "daemon/sched/outbox.h"
#include "daemon/sched/rings.h"
#include "daemon/sched/scheduler.h"
#include "daemon/sched/session_port.h"
#include "daemon/sched/watches.h"
#include "daemon/telemetry/record_ring.h"

namespace concert::daemon {

// What becomes of the later op of a race (races.h): it fails, it is logged, or nobody looks.
enum class SimRaces : uint8_t { kError, kWarn, kOff };

struct DispatcherOptions {
  SchedulerOptions scheduler;                   // find_races is filled in
  SimRaces sim_races = SimRaces::kError;        // where the device is the simulator
  int64_t spin_ns = defaults::kSpinUs * 1'000;  // without anything to do before it sleeps
  bool pin = defaults::kPinDispatchers;         // to a CPU of its own, where there are enough
};

// Numbers for the admin API, updated once per turn.
struct DispatcherGauges {
  std::atomic<uint32_t> plans_in_flight{0}, ready_ops{0}, unfinished_ops{0}, queues{0}, sessions{0};
  std::atomic<uint64_t> sleeps{0}, launch_errors{0};
  std::atomic<uint64_t> wakes{0};  // system calls that woke threads of clients
  CollectiveEnds collective_ends;
  std::atomic<uint64_t> turns{0};  // a heartbeat: grows at least every half second
  std::atomic<bool> healthy{true};
  std::atomic<bool> drained{false};  // what was published before the drain began has ended
};

class Dispatcher {
 public:
  // `control`, `issuer` and `records` outlive the dispatcher.
  Dispatcher(const DispatcherOptions& options, Device& device,
             std::unique_ptr<policies::Policy> policy, ControlMailbox& control,
             IssuerMailbox& issuer, RecordRing& records);
  ~Dispatcher();

  void Start();
  // Ends the thread after its current turn; what is in flight is left alone.
  void Stop();

  DispatcherMailbox& mailbox() { return mailbox_; }
  // The control thread, before a client learns of what a message of it tells: no op is admitted
  // until as many of its messages have been handled as were announced, since the message may come
  // later than the op.
  void Announce() { announced_.fetch_add(1, std::memory_order_release); }
  const DispatcherGauges& gauges() const { return gauges_; }
  int gpu() const { return options_.scheduler.gpu; }

  // One turn of the loop, for tests and benchmarks that drive it themselves. True if it did
  // anything.
  bool Turn(Time now);

  // For tests and benchmarks that drive it.
  const Scheduler& scheduler() const { return scheduler_; }
  const Watches& watches() const { return watches_; }
  // Whether it may sleep, having had nothing to do since `idle_since`.
  bool MaySleep(Time now, Time idle_since) const;
  // How long it may sleep then.
  Time SleepTime(Time now, Time idle_since) const;

 private:
  void Run();
  bool HasWork();
  void Sleep(Time idle_since);

  // Messages (dispatcher_messages.cc).
  // `now` becomes later where a message tells of something that was later. `emptied`: all that
  // had been sent or announced when this was called has been handled.
  bool HandleMessages(Time& now, bool& emptied);
  void Handle(const DispatcherMessage& message);
  void HandleForSession(SessionPort& port, const DispatcherMessage& message);
  void AddSession(const SessionLink& link);
  void RemoveSession(SessionPort& port);
  bool CancelSome(SessionPort& port, int& budget);
  bool EndWatches(SessionPort& port, uint32_t timeline, int& budget);
  void RemoveLater(SessionPort& port, SessionPort::Removal::What what, uint32_t handle);
  void FinishRemovals(SessionPort& port);
  bool GoOnWithRemovals();
  void Remove(SessionPort& port, const SessionPort::Removal& removal);
  bool ReleaseSessions();
  void ReleaseBufferIfUnused(SessionPort& port, uint32_t handle);
  void ReleaseQueues();
  void Tell(const ControlEvent& event);
  void Break(SessionPort& port, const kernels::Failure& why);
  void BeginDrain();
  bool Drained() const;

  // Admission (admission.cc).
  void ReadRings(Time now);
  bool Admit(Time now);
  uint32_t AdmitFrom(SessionPort& port, uint32_t limit, bool gpu_waits, Time now);
  bool AdmitOne(SessionPort& port, const concert_descriptor& descriptor, Time now);
  kernels::Failure AdmitOp(SessionPort& port, const concert_descriptor& descriptor, OpId id);
  static kernels::Failure AdmitHeader(const concert_descriptor& descriptor,
                                      const kernels::OpKind* kind);
  kernels::Failure AdmitWaits(SessionPort& port, const concert_descriptor& descriptor, OpId id);
  kernels::Failure AdmitMember(SessionPort& port, const concert_descriptor& descriptor, OpId id,
                               Membership& membership);
  kernels::Failure AdmitBody(const SessionPort& port, const kernels::OpKind& kind,
                             const concert_descriptor& descriptor, const Membership& membership,
                             Op& op);

  // Races (dispatcher_races.cc).
  void CheckRaces(Time now);
  kernels::Failure FailureOf(const Races::Race& race);
  void TellOfRace(SessionPort& port, const kernels::Failure& failure, Time now);

  // Progress and launching (dispatcher.cc).
  bool PollTimelines(Time now);
  bool PollWatches(Time now);
  void DropWatches(OpId op);
  void WakeAdvanced();
  bool WakeCrowds();
  void Execute(Actions& actions);
  kernels::Failure DeviceFailure(const Op& op, const absl::Status& status) const;
  void Launch(std::span<const OpId> ids, LaunchRequest& launch);
  void Offer(OpId op, const LaunchRequest& launch);
  void Complete(OpId op);
  void Release(OpId op);
  void CheckHealth(Time now);
  void CheckStalls(Time now);
  void FailStalled(const kernels::StalledRun& run);
  void FlushRecords();
  void ServeLease();
  SessionPort& PortOf(OpId op) { return *owner_of_[scheduler_.slot(op).queue].port; }

  const DispatcherOptions options_;
  Device& device_;
  RecordRing& records_;
  DispatcherMailbox mailbox_;
  Scheduler scheduler_;
  Executor executor_;
  DispatcherGauges gauges_;

  absl::flat_hash_map<uint32_t, std::unique_ptr<SessionPort>> ports_;
  Rings rings_;
  std::vector<SessionPort*> removing_;
  std::deque<SessionPort*> letting_go_;  // that have removals which are due
  uint32_t removals_left_ = 0;           // of this turn
  std::vector<SessionPort*> visited_;    // scratch of Admit
  Company company_;
  struct QueueOwner {
    SessionPort* port = nullptr;
    uint32_t queue = 0;
    uint64_t completed_turn = 0;  // the last turn in which an op of it was completed
    uint32_t to_wake = 0;         // threads that sleep on its timeline still; > 0: it is a crowd
  };
  // What of an op is none of the scheduler's business.
  struct Admitted {
    // A collective's part that counts as its rank's next: if it is refused, the other ranks are
    // told. Of others that are refused the arguments are whatever the slot held before.
    bool counts = false;
    bool offered = false;        // the rendezvous has or had it
    bool part_launched = false;  // and all ranks' parts were launched
    bool reported = false;       // its completion entry is published
    bool late = false;           // published after the drain began
    uint8_t charged_waits = 0;   // its user's account holds them under Resource::kWaits
  };
  std::vector<Admitted> admitted_;    // by OpId
  std::vector<QueueOwner> owner_of_;  // by scheduler queue id
  std::vector<QueueId> advanced_;     // whose timelines have moved and whose threads to wake
  std::vector<QueueId> crowds_;
  size_t next_crowd_ = 0;
  Watches watches_;
  Outbox<ControlEvent> events_;
  Actions actions_;
  LeaseHolder* lease_holder_ = nullptr;
  kernels::Failure refuse_;  // not ok: why new ops are refused (draining, device gone)
  Time next_health_check_ = 0, next_stall_check_ = 0;
  bool draining_ = false;
  uint32_t late_ops_ = 0;               // unfinished ops that were published after the drain began
  bool unread_ = false;                 // the last turn found ops published that it could admit
  bool busy_ = true;                    // the last turn did something: there may be more
  std::atomic<uint64_t> announced_{0};  // messages of the control thread about sessions
  uint64_t told_ = 0;                   // those that have been handled
  uint64_t turns_ = 0;
  Time turn_at_ = 0;
  int epoll_fd_ = -1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_DISPATCHER_H_
