#include "daemon/sched/dispatcher.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "daemon/check.h"
#include "daemon/quota/budget.h"
#include "kernels/program/program.h"

namespace concert::daemon {
namespace {

using kernels::Failure;

constexpr Time kHealthCheckPeriodNs = 10'000'000;
constexpr Time kStallCheckPeriodNs = 10'000'000;  // a run has stalled for seconds by then

// An idle turn every few microseconds.
constexpr uint32_t kLooksPerIdleTurn = 64;
constexpr size_t kMaxRecordsKept = 256;

// Sleeping with work on the GPU must be short: nothing rings when a timeline advances. Other words
// that nothing rings for deserve a nap in proportion to how long nothing has happened: what is seen
// late then was late already.
constexpr Time kNapNs = 50'000;
constexpr Time kLongestNapNs = 1'000'000;
constexpr Time kIdlePerNap = 64;
constexpr Time kIdleSleepNs = 500'000'000;

SchedulerOptions SchedulerOptionsOf(const DispatcherOptions& options, const Device& device) {
  SchedulerOptions result = options.scheduler;
  result.find_races = options.sim_races != SimRaces::kOff && device.info().backend == "sim";
  return result;
}

}  // namespace

Dispatcher::Dispatcher(const DispatcherOptions& options, Device& device,
                       std::unique_ptr<policies::Policy> policy, ControlMailbox& control,
                       IssuerMailbox& issuer, RecordRing& records)
    : options_(options),
      device_(device),
      records_(records),
      mailbox_(kDispatcherMailboxCapacity),
      scheduler_(SchedulerOptionsOf(options, device), device.info().model, std::move(policy)),
      executor_(device, issuer),
      admitted_(options.scheduler.max_ops),
      watches_(options.scheduler.max_ops),
      events_(control),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)) {
  advanced_.reserve(options.scheduler.max_queues);
  crowds_.reserve(options.scheduler.max_queues);
  visited_.reserve(policies::kMaxReady);
  CONCERT_CHECK(epoll_fd_ >= 0);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  CONCERT_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, mailbox_.wake_fd(), &event) == 0);
}

Dispatcher::~Dispatcher() {
  Stop();
  close(epoll_fd_);
}

void Dispatcher::Start() { thread_ = std::thread(&Dispatcher::Run, this); }

void Dispatcher::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  // Any message wakes it, so if the mailbox is full it is awake.
  (void)mailbox_.TryPush(DispatcherMessage(DispatcherMessage::Type::kWake));
  thread_.join();
}

void Dispatcher::Run() {
  pthread_setname_np(pthread_self(), ("gpu" + std::to_string(gpu())).c_str());
  if (options_.pin) PinToCpuOfItsOwn(gpu());
  Time idle_since = NowNs();
  for (uint32_t looks = 1; !stop_.load(std::memory_order_acquire); ++looks) {
    // Reading the clock costs more than a look at everything that may have moved, so an idle
    // dispatcher looks at the clock, and with it at timeouts, only now and then.
    if (!HasWork() && looks % kLooksPerIdleTurn != 0) {
      CpuRelax();
      continue;
    }
    const Time now = NowNs();
    if (Turn(now)) {
      idle_since = now;
    } else if (MaySleep(now, idle_since)) {
      Sleep(idle_since);
    }
  }
}

// Whether a turn would find something to do.
bool Dispatcher::HasWork() {
  if (busy_ || !mailbox_.empty() || rings_.HasWork()) return true;
  for (const QueueId queue : scheduler_.active_queues()) {
    const QueueOwner& owner = owner_of_[queue];
    if (LoadRelaxed(owner.port->timeline(owner.queue)) >= scheduler_.OldestTicket(queue))
      return true;
  }
  return watches_.HasWork();
}

bool Dispatcher::Turn(Time now) {
  turn_at_ = now;
  // Before timelines are read: what is told of here must not have been seen to end.
  if (now >= next_stall_check_) CheckStalls(now);
  ReadRings(now);
  removals_left_ = PerTurn(Work::kRemovals);
  bool progress = GoOnWithRemovals();
  bool emptied = false;
  progress |= HandleMessages(now, emptied);
  if (emptied) progress |= Admit(now);
  progress |= PollTimelines(now);
  progress |= PollWatches(now);
  if (scheduler_.races() != nullptr) CheckRaces(now);
  actions_.Clear();
  scheduler_.Step(now, actions_);
  progress |= !actions_.empty() || scheduler_.pending();
  Execute(actions_);
  progress |= WakeCrowds();
  progress |= watches_.ReadCold(now);
  // Records are for later: a client that waited for what just ended submits its next op now.
  const bool idle = !progress && (!busy_ || lease_holder_ != nullptr);
  if (idle || scheduler_.op_records().size() > kMaxRecordsKept) FlushRecords();
  if (!scheduler_.ended_queues().empty()) ReleaseQueues();
  if (!removing_.empty()) progress |= ReleaseSessions();
  events_.Send();
  if (now >= next_health_check_) CheckHealth(now);
  gauges_.plans_in_flight.store(static_cast<uint32_t>(scheduler_.plans_in_flight()),
                                std::memory_order_relaxed);
  gauges_.ready_ops.store(scheduler_.ready_count(), std::memory_order_relaxed);
  gauges_.unfinished_ops.store(scheduler_.unfinished(), std::memory_order_relaxed);
  gauges_.queues.store(scheduler_.queue_count(), std::memory_order_relaxed);
  gauges_.turns.store(++turns_, std::memory_order_relaxed);
  if (draining_ && !gauges_.drained.load(std::memory_order_relaxed)) {
    gauges_.drained.store(Drained(), std::memory_order_relaxed);
  }
  if (lease_holder_ != nullptr) ServeLease();
  busy_ = progress || lease_holder_ != nullptr;
  return busy_;
}

// A turn for the lease_holder. It polls what it has started, so that this counts as progress.
void Dispatcher::ServeLease() {
  const bool idle = scheduler_.idle() && !unread_ && removing_.empty();
  if (!lease_holder_->Turn(device_, idle)) lease_holder_ = nullptr;
}

// Around the time at which something on the GPU is predicted to end it stays awake: the client that
// waits for it rings with its next op at once, and to wake up costs 12 us of a decode step's 300
// (one H100).
bool Dispatcher::MaySleep(Time now, Time idle_since) const {
  const Time spin = options_.spin_ns;
  if (scheduler_.has_records()) return false;  // which the next idle turn hands over
  return now - idle_since > spin && scheduler_.NextEnd(now - spin) - now > spin;
}

// What nothing rings for, it must look at itself.
Time Dispatcher::SleepTime(Time now, Time idle_since) const {
  if (!scheduler_.active_queues().empty()) return kNapNs;
  Time limit = kIdleSleepNs;
  // The first: that another GPU offers fewer parts. The last: a client that takes its failures.
  if (scheduler_.parts_stalled() || scheduler_.parts_held_back() || !watches_.empty() ||
      !removing_.empty() || events_.late() > 0 || rings_.any_stuck()) {
    limit = std::clamp((now - idle_since) / kIdlePerNap, kNapNs, kLongestNapNs);
  }
  if (scheduler_.next_timeout() == Readiness::kNever) return limit;
  return std::min(limit, std::max(scheduler_.next_timeout() - now, kNapNs));
}

// Sleeps until a client rings, a message comes or SleepTime has passed.
void Dispatcher::Sleep(Time idle_since) {
  const Time now = NowNs();
  mailbox_.PrepareSleep();  // ends with a full fence
  rings_.AskForBell();
  // Full fence: pairs with the client's between storing the tail and loading `sleeping`.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool work = rings_.FindNews(now);
  if (!work && mailbox_.empty()) {
    const timespec timeout{.tv_sec = 0, .tv_nsec = SleepTime(now, idle_since)};
    std::array<epoll_event, 16> events;
    gauges_.sleeps.fetch_add(1, std::memory_order_relaxed);
    const int count =
        epoll_pwait2(epoll_fd_, events.data(), static_cast<int>(events.size()), &timeout, nullptr);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.ptr == nullptr) continue;  // the mailbox
      rings_.HasNews(*static_cast<SessionPort*>(events[i].data.ptr), now);
    }
  }
  rings_.EndSleep();
  mailbox_.FinishSleep();
}

bool Dispatcher::PollTimelines(Time now) {
  bool progress = false;
  // Backwards, since TimelineSeen may replace the current entry by the last one.
  for (size_t i = scheduler_.active_queues().size(); i > 0; --i) {
    const QueueId queue = scheduler_.active_queues()[i - 1];
    const QueueOwner& owner = owner_of_[queue];
    // Acquire: pairs with the device's write after the op's results. Fetching the lines of all
    // queues ahead, which the GPU is about to write, made small sets 6 % slower (one H200).
    const uint64_t value = LoadAcquire(owner.port->timeline(owner.queue));
    if (value < scheduler_.OldestTicket(queue)) continue;
    scheduler_.TimelineSeen(queue, value, now);
    advanced_.push_back(queue);
    progress = true;
  }
  if (progress) WakeAdvanced();
  return progress;
}

// One thread of each, which is all that most queues have.
void Dispatcher::WakeAdvanced() {
  SessionPort::FenceBeforeWake();  // one for all: it costs as much as the rest of a wake
  uint64_t wakes = 0;
  for (const QueueId id : advanced_) {
    QueueOwner& owner = owner_of_[id];
    const uint32_t sleepers = owner.port->Sleepers(owner.queue);
    if (sleepers == 0) continue;
    ++wakes;
    if (owner.port->Wake(owner.queue, 1) == 0 || sleepers == 1) continue;
    if (owner.to_wake == 0) crowds_.push_back(id);
    owner.to_wake = sleepers - 1;
  }
  if (wakes > 0) gauges_.wakes.fetch_add(wakes, std::memory_order_relaxed);
  advanced_.clear();
}

// Of one crowd a turn, in turn: to wake a thread takes some 7 us, and clients have as many as they
// like. Who sleeps behind them, since the timeline moved, waits for more. True if there are others.
bool Dispatcher::WakeCrowds() {
  if (crowds_.empty()) return false;
  if (next_crowd_ >= crowds_.size()) next_crowd_ = 0;
  QueueOwner& owner = owner_of_[crowds_[next_crowd_]];
  const uint32_t most = std::min(owner.to_wake, PerTurn(Work::kWakes));
  const uint32_t woken = owner.port->Wake(owner.queue, most);
  gauges_.wakes.fetch_add(1, std::memory_order_relaxed);
  owner.to_wake = woken < most ? 0 : owner.to_wake - most;
  if (owner.to_wake > 0) {
    ++next_crowd_;
  } else {
    crowds_[next_crowd_] = crowds_.back();
    crowds_.pop_back();
  }
  return true;
}

bool Dispatcher::PollWatches(Time now) {
  return watches_.Poll(now,
                       [this](OpId op, uint8_t index) { scheduler_.WaitSatisfied(op, index); }) > 0;
}

void Dispatcher::DropWatches(OpId id) {
  uint8_t watched = scheduler_.TakeWatchedWaits(id);
  for (; watched != 0; watched &= static_cast<uint8_t>(watched - 1)) {
    watches_.Drop(id, static_cast<uint8_t>(std::countr_zero(watched)));
  }
}

void Dispatcher::Execute(Actions& actions) {
  for (const OpId op : actions.completed) Complete(op);
  for (LaunchRequest& launch : actions.launches) {
    const std::span<const OpId> ops = actions.OpsOf(launch);
    if (policies::IsCollectiveLane(launch.planned.lane)) {
      Offer(ops[0], launch);
    } else {
      launch.after = actions.AfterOf(launch);
      Launch(ops, launch);
    }
  }
  for (const OpId op : actions.released) Release(op);
  if (!advanced_.empty()) WakeAdvanced();
}

Failure Dispatcher::DeviceFailure(const Op& op, const absl::Status& status) const {
  return {CONCERT_ABI_INTERNAL,
          CONCERT_MESSAGE_DEVICE_ERROR,
          {static_cast<uint64_t>(gpu()), op.kind, static_cast<uint64_t>(status.raw_code())}};
}

void Dispatcher::Launch(std::span<const OpId> ids, LaunchRequest& launch) {
  executor_.Begin();
  for (const OpId id : ids) {
    const Op& op = scheduler_.slot(id).op;
    executor_.Add(op, PortOf(id).TimelineWriteFor(op.queue, op.ticket));
  }
  const absl::Status status = executor_.Launch(launch);
  if (status.ok()) {
    // A GPU that has faulted takes no launch. To ask it keeps this thread 20 to 40 us (one H100).
    next_health_check_ = turn_at_ + kHealthCheckPeriodNs;
    return;
  }
  for (const OpId id : ids) {
    const Op& op = scheduler_.slot(id).op;
    const Failure failure = DeviceFailure(op, status);
    // Before the signal: whoever sees the ticket sees why the op failed.
    PortOf(id).PublishCompletion(op, failure);
    admitted_[id].reported = true;
    scheduler_.LaunchFailed(id, failure);
  }
  gauges_.launch_errors.fetch_add(1, std::memory_order_relaxed);
  if (!executor_.Signal(launch.planned.lane).ok()) next_health_check_ = 0;
}

void Dispatcher::Offer(OpId id, const LaunchRequest& launch) {
  const Op& op = scheduler_.slot(id).op;
  SessionPort& port = PortOf(id);
  const SessionPort::Member* member = port.FindMember(op.collective.communicator);
  if (member == nullptr) {
    scheduler_.PartFailed(
        id, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_NO_COMMUNICATOR, {op.collective.communicator}});
    return;
  }
  const RankPart part{.gpu = gpu(),
                      .lane = launch.planned.lane,
                      .op = &op,
                      .id = id,
                      .signal = port.TimelineWriteFor(op.queue, op.ticket),
                      .beside = scheduler_.GemmsBeside(turn_at_)};
  const absl::Status status = executor_.Offer(member->membership, part, launch.order_mask);
  admitted_[id].offered = status.ok();
  if (!status.ok()) scheduler_.PartFailed(id, DeviceFailure(op, status));
}

// Ends an op that the device does not end.
void Dispatcher::Complete(OpId id) {
  OpSlot& slot = scheduler_.slot(id);
  QueueOwner& owner = owner_of_[slot.queue];
  SessionPort& port = *owner.port;
  // What the awaited word stands at is known here only.
  if (slot.timed_out_wait < CONCERT_MAX_WAITS && (slot.watched_waits >> slot.timed_out_wait & 1)) {
    slot.failure.args[4] = LoadAcquire(watches_.WordOf(id, slot.timed_out_wait));
  }
  if (!admitted_[id].reported) port.PublishCompletion(slot.op, slot.failure);
  port.AdvanceTimeline(slot.op.queue, slot.op.ticket);
  // However many of a queue complete in a turn, its threads are woken once.
  if (owner.completed_turn != turns_ + 1) {
    owner.completed_turn = turns_ + 1;
    advanced_.push_back(slot.queue);
  }
  if (!admitted_[id].counts || admitted_[id].offered) return;
  const SessionPort::Member* member = port.FindMember(slot.op.collective.communicator);
  if (member == nullptr) return;
  executor_.Refuse(member->membership, slot.op.collective.sequence);
}

// Lets go of what an ended op held.
void Dispatcher::Release(OpId id) {
  const OpSlot& slot = scheduler_.slot(id);
  SessionPort& port = PortOf(id);
  DropWatches(id);
  for (const uint32_t handle : slot.op.buffers) {
    --port.buffer_uses[handle];
    if (port.buffer_releasing[handle]) ReleaseBufferIfUnused(port, handle);
  }
  --port.unfinished;
  const Admitted& admitted = admitted_[id];
  late_ops_ -= admitted.late ? 1 : 0;
  if (admitted.part_launched) {
    gauges_.collective_ends.Of(slot.flight.lane).fetch_add(1, std::memory_order_relaxed);
  }
  port.ops.Give(1);
  if (admitted.charged_waits > 0) port.waits.Give(admitted.charged_waits);
  if (!port.removing) rings_.List(port);  // it may have been full
  scheduler_.FreeOp(id);
}

void Dispatcher::CheckHealth(Time now) {
  next_health_check_ = now + kHealthCheckPeriodNs;
  if (!gauges_.healthy.load(std::memory_order_relaxed) || device_.healthy().ok()) return;
  gauges_.healthy.store(false, std::memory_order_relaxed);
  refuse_ = {CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_LOST, {static_cast<uint64_t>(gpu())}};
  scheduler_.FailAll(refuse_);
}

void Dispatcher::CheckStalls(Time now) {
  next_stall_check_ = now + kStallCheckPeriodNs;
  device_.TakeStalledRuns([this](const kernels::StalledRun& run) { FailStalled(run); });
}

// Its session may have gone, with the run's end that a GPU tells us of too late.
void Dispatcher::FailStalled(const kernels::StalledRun& run) {
  const auto found = ports_.find(run.session);
  if (found == ports_.end()) return;
  SessionPort& port = *found->second;
  if (run.queue >= port.queues.size() || port.queues[run.queue].id == kNone) return;
  const OpId id = scheduler_.FindLaunched(port.queues[run.queue].id, run.ticket);
  if (id == kNone || admitted_[id].reported) return;
  const Op& op = scheduler_.slot(id).op;
  const bool is_first = !op.program.program->has_stalled.exchange(true, std::memory_order_relaxed);
  const Failure failure = {CONCERT_ABI_INTERNAL,
                           CONCERT_MESSAGE_RUN_STALLED,
                           {static_cast<uint64_t>(gpu()), run.block, run.stage}};
  port.PublishCompletion(op, failure);
  admitted_[id].reported = true;
  scheduler_.LaunchFailed(id, failure);
  if (!is_first) return;
  Tell({.type = ControlEvent::Type::kProgramStalled,
        .session = run.session,
        .handle = op.buffers[0],
        .failure = failure});
}

// Hands over what ended; the ring counts what it has no room for.
void Dispatcher::FlushRecords() {
  for (const OpRecord& record : scheduler_.op_records()) records_.Push(record);
  for (const PlanRecord& record : scheduler_.plan_records()) records_.Push(record);
  scheduler_.op_records().clear();
  scheduler_.plan_records().clear();
}

}  // namespace concert::daemon
