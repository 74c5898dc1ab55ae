// What other threads ask of a dispatcher, and how it lets go of sessions, queues and buffers.
#include <sys/epoll.h>

#include <algorithm>

#include "daemon/check.h"
#include "daemon/quota/budget.h"
#include "daemon/sched/dispatcher.h"
#include "kernels/program/pass.h"

namespace concert::daemon {

using kernels::Failure;

bool Dispatcher::HandleMessages(Time& now, bool& emptied) {
  // Acquire: pairs with Announce. Before the mailbox is read, so that what was announced and is not
  // in it is missed.
  const uint64_t announced = announced_.load(std::memory_order_acquire);
  emptied = false;
  DispatcherMessage message;
  for (uint32_t i = 0; i < PerTurn(Work::kMessages); ++i) {
    if (!mailbox_.TryPop(message)) {
      emptied = told_ >= announced;
      return i > 0;
    }
    // What was launched after this turn began may be seen to end in it: that is later.
    if (message.type == DispatcherMessage::Type::kPartLaunched) now = std::max(now, NowNs());
    Handle(message);
  }
  return true;
}

void Dispatcher::Handle(const DispatcherMessage& message) {
  using Type = DispatcherMessage::Type;
  switch (message.type) {
    case Type::kWake:
      return;
    case Type::kPartLaunched:
      admitted_[message.part.op].part_launched = true;
      scheduler_.PartLaunched(message.part.op, message.part.reservation, message.part.launched_at);
      return;
    case Type::kPartFailed:
      scheduler_.PartFailed(message.part.op, message.part.failure);
      return;
    case Type::kRanksThere:
      scheduler_.RanksThere(message.news.op, message.news.ranks_there, message.news.since);
      return;
    case Type::kSetPolicy:
      scheduler_.SetPolicy(message.replacement->policy);
      message.replacement->done.store(true, std::memory_order_release);
      return;
    case Type::kUseTuned:
      device_.UseTuned(message.replacement->tuned);
      scheduler_.UseTuned(message.replacement->tuned);
      message.replacement->done.store(true, std::memory_order_release);
      return;
    case Type::kLease:
      CONCERT_CHECK(lease_holder_ == nullptr);  // the tuner waits for one before it sends another
      lease_holder_ = message.lease_holder;
      return;
    case Type::kDrain:
      BeginDrain();
      return;
    case Type::kFailAll:
      refuse_ = message.part.failure;
      scheduler_.FailQueued(message.part.failure);
      return;
    default:
      break;
  }
  ++told_;
  if (message.type == Type::kGiveUpPass) {
    // Release: pairs with the control thread's acquire. No program refers to it, so no decision
    // from here on finds it.
    message.pass->given_up.store(true, std::memory_order_release);
    return;
  }
  if (message.type == Type::kAddSession) return AddSession(message.link);
  const auto found = ports_.find(message.session);
  CONCERT_CHECK(found != ports_.end());
  HandleForSession(*found->second, message);
}

void Dispatcher::HandleForSession(SessionPort& port, const DispatcherMessage& message) {
  using Type = DispatcherMessage::Type;
  switch (message.type) {
    case Type::kRemoveSession:
      RemoveSession(port);
      return;
    case Type::kAddQueue: {
      const QueueId id = scheduler_.AddQueue(message.session, message.queue.priority,
                                             port.link().account, message.queue.next_ticket);
      CONCERT_CHECK(id != kNone);  // the control thread counts queues
      port.queues[message.queue.queue] = {
          .id = id, .next_ticket = message.queue.next_ticket, .removing = false};
      if (owner_of_.size() <= id) owner_of_.resize(id + 1);
      owner_of_[id] = {&port, message.queue.queue};
      return;
    }
    case Type::kRemoveQueue:
      RemoveLater(port, SessionPort::Removal::What::kQueue, message.queue.queue);
      return;
    case Type::kAddBuffer: {
      const uint32_t handle = message.buffer.handle;
      if (port.buffers.size() <= handle) {
        port.buffers.resize(handle + 1);
        port.buffer_uses.resize(handle + 1);
        port.buffer_releasing.resize(handle + 1);
      }
      port.buffers[handle] = message.buffer.range;
      return;
    }
    case Type::kReleaseBuffer:
      RemoveLater(port, SessionPort::Removal::What::kBuffer, message.buffer.handle);
      return;
    case Type::kAddMembership:
      port.members.push_back({message.membership, 0});
      return;
    case Type::kRemoveMembership:
      std::erase_if(port.members, [&](const SessionPort::Member& member) {
        return member.membership.handle == message.membership.handle;
      });
      return;
    default:
      CONCERT_CHECK(false);
  }
}

// What is published from here on is late: it is refused like what comes before it, but the drain
// does not wait for it, or who floods would hold it up.
void Dispatcher::BeginDrain() {
  if (refuse_.ok()) refuse_ = {CONCERT_ABI_UNAVAILABLE, CONCERT_MESSAGE_DRAINING, {}};
  if (draining_) return;
  draining_ = true;
  for (const auto& [session, port] : ports_) {
    if (port->broken || !port->has_ring()) continue;
    Failure why;
    if (!port->ReadTail(why)) Break(*port, why);
    port->drain_end = port->tail();
  }
}

// Whether all that was published before the drain began has ended.
bool Dispatcher::Drained() const {
  if (scheduler_.unfinished() > late_ops_) return false;
  return std::none_of(ports_.begin(), ports_.end(), [](const auto& entry) {
    const SessionPort& port = *entry.second;
    // A client that does not take its failures is stuck, and not waited for.
    return port.head() < port.drain_end && !port.broken && !port.removing && !port.place.stuck;
  });
}

void Dispatcher::AddSession(const SessionLink& link) {
  auto port = std::make_unique<SessionPort>(link);
  if (port->has_ring()) {
    // Edge-triggered: every ring wakes, and nothing need be read. A read could block for ever,
    // since the client shares the descriptor's flags and may clear O_NONBLOCK.
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = port.get()}};
    CONCERT_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, link.event_fd, &event) == 0);
    rings_.Add(*port, turn_at_);
  }
  ports_.emplace(link.session, std::move(port));
  gauges_.sessions.store(static_cast<uint32_t>(ports_.size()), std::memory_order_relaxed);
}

void Dispatcher::RemoveSession(SessionPort& port) {
  port.removing = true;
  port.removals.clear();
  if (port.letting_go) std::erase(letting_go_, &port);
  port.open_queues = static_cast<uint32_t>(
      std::count_if(port.queues.begin(), port.queues.end(),
                    [](const SessionPort::QueueEntry& queue) { return queue.id != kNone; }));
  if (port.has_ring()) {
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, port.link().event_fd, nullptr);
    rings_.Remove(port);
  }
  removing_.push_back(&port);
}

// Goes on with a removed session's queues, then with waits of other sessions for its words. True
// when nothing is left to do.
bool Dispatcher::CancelSome(SessionPort& port, int& budget) {
  const size_t queues = port.queues.size();
  for (; port.cancelled < queues + port.watched.size(); ++port.cancelled) {
    if (budget <= 0) return false;
    if (port.cancelled >= queues) {
      const auto timeline = static_cast<uint32_t>(port.cancelled - queues);
      if (!EndWatches(port, timeline, budget)) return false;
      continue;
    }
    SessionPort::QueueEntry& queue = port.queues[port.cancelled];
    if (queue.id == kNone || queue.removing) continue;
    queue.removing = true;
    budget -= 1 + static_cast<int>(scheduler_.RemoveQueue(queue.id, true));
  }
  return true;
}

// Ops of other sessions that wait for a word of the removed one would wait for unmapped memory.
// True when none is left.
bool Dispatcher::EndWatches(SessionPort& port, uint32_t timeline, int& budget) {
  const Watches::WordId word = port.watched[timeline];
  if (word == kNone) return true;
  const auto end = [this](OpId op, uint8_t index, uint64_t awaited, uint64_t value) {
    scheduler_.WaitSatisfied(op, index);
    if (value >= awaited || !scheduler_.slot(op).may_launch) return;
    scheduler_.Fail(
        op, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_WAIT_UNREACHABLE, {index, awaited, value}});
  };
  budget -= static_cast<int>(watches_.End(word, static_cast<uint32_t>(budget), end));
  return port.watched[timeline] == kNone;
}

// What the client published before it asked may still use the queue or buffer. The tail is read
// again, since it may have moved between this turn's reading and the client's request.
void Dispatcher::RemoveLater(SessionPort& port, SessionPort::Removal::What what, uint32_t handle) {
  Failure why;
  if (port.has_ring()) {
    if (!port.broken && !port.ReadTail(why)) Break(port, why);
    rings_.List(port);
  }
  port.removals.push_back({what, handle, port.tail()});
  FinishRemovals(port);
}

// Removes queues and buffers once all that was published before is admitted; those that would be
// too many for a turn in the next ones.
void Dispatcher::FinishRemovals(SessionPort& port) {
  for (; !port.removals.empty(); --removals_left_, port.removals.pop_front()) {
    const SessionPort::Removal& removal = port.removals.front();
    if (port.head() < removal.position && !port.broken) return;
    if (removals_left_ == 0) {
      if (!port.letting_go) letting_go_.push_back(&port);
      port.letting_go = true;
      return;
    }
    Remove(port, removal);
  }
}

// True if there is more.
bool Dispatcher::GoOnWithRemovals() {
  for (size_t left = letting_go_.size(); left > 0 && removals_left_ > 0; --left) {
    SessionPort& port = *letting_go_.front();
    letting_go_.pop_front();
    port.letting_go = false;
    FinishRemovals(port);
  }
  return !letting_go_.empty();
}

void Dispatcher::Remove(SessionPort& port, const SessionPort::Removal& removal) {
  if (removal.what == SessionPort::Removal::What::kQueue) {
    SessionPort::QueueEntry& entry = port.queues[removal.handle];
    entry.removing = true;
    scheduler_.RemoveQueue(entry.id, false);
    return;
  }
  // From here on no new op finds it. Where it lies is still asked for ops that use it.
  port.buffers[removal.handle].bytes = 0;
  port.buffers[removal.handle].program = nullptr;
  port.buffer_releasing[removal.handle] = true;
  ReleaseBufferIfUnused(port, removal.handle);
}

// Goes on with removed sessions and answers for those of which nothing is left here. True if there
// is more to cancel.
bool Dispatcher::ReleaseSessions() {
  auto budget = PerTurn<int>(Work::kCancellations);
  for (size_t i = 0; i < removing_.size();) {
    SessionPort& port = *removing_[i];
    if (!CancelSome(port, budget) || port.unfinished > 0 || port.open_queues > 0) {
      ++i;
      continue;
    }
    const uint32_t session = port.link().session;
    removing_[i] = removing_.back();
    removing_.pop_back();
    ports_.erase(session);
    scheduler_.ForgetSession(session);
    gauges_.sessions.store(static_cast<uint32_t>(ports_.size()), std::memory_order_relaxed);
    Tell({.type = ControlEvent::Type::kSessionReleased, .session = session});
  }
  return budget <= 0;
}

void Dispatcher::ReleaseBufferIfUnused(SessionPort& port, uint32_t handle) {
  if (port.buffer_uses[handle] > 0) return;
  port.buffer_releasing[handle] = false;
  Tell({.type = ControlEvent::Type::kBufferReleased,
        .session = port.link().session,
        .handle = handle});
}

// Answers for removed queues of which nothing is left: no op of theirs and none that waits for
// them.
void Dispatcher::ReleaseQueues() {
  for (const QueueId id : scheduler_.ended_queues()) {
    const QueueOwner owner = owner_of_[id];
    if (owner.to_wake > 0) std::erase(crowds_, id);
    owner_of_[id] = {};
    scheduler_.ReclaimQueue(id);
    owner.port->queues[owner.queue] = {};
    if (owner.port->removing) {
      --owner.port->open_queues;
      continue;
    }
    Tell({.type = ControlEvent::Type::kQueueReleased,
          .session = owner.port->link().session,
          .handle = owner.queue});
  }
  scheduler_.ended_queues().clear();
}

// At most one event for every handle and session that the control thread has given out is late.
void Dispatcher::Tell(const ControlEvent& event) { events_.Push(event); }

void Dispatcher::Break(SessionPort& port, const Failure& why) {
  port.broken = true;
  rings_.SetStuck(port, false);
  Tell(
      {.type = ControlEvent::Type::kSessionBroken, .session = port.link().session, .failure = why});
}

}  // namespace concert::daemon
