// What other threads ask of a dispatcher, and how it lets go of sessions, queues and buffers.
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>

#include "daemon/check.h"
#include "daemon/sched/dispatcher.h"

namespace concert::daemon {

using kernels::Failure;

bool Dispatcher::HandleMessages(Time& now) {
  DispatcherMessage message;
  bool any = false;
  while (mailbox_.TryPop(message)) {
    // What was launched after this turn began may be seen to end in it: that is later.
    if (message.type == DispatcherMessage::Type::kPartLaunched) now = std::max(now, NowNs());
    Handle(message);
    any = true;
  }
  return any;
}

void Dispatcher::Handle(const DispatcherMessage& message) {
  using Type = DispatcherMessage::Type;
  switch (message.type) {
    case Type::kWake:
      return;
    case Type::kPartLaunched:
      scheduler_.PartLaunched(message.part.op, message.part.launched_at);
      return;
    case Type::kPartFailed:
      scheduler_.PartFailed(message.part.op, message.part.failure);
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
    case Type::kLend:
      CONCERT_CHECK(borrower_ == nullptr);  // the tuner waits for one before it lends another
      borrower_ = message.borrower;
      return;
    case Type::kDrain:
      if (refuse_.ok()) refuse_ = {CONCERT_ABI_UNAVAILABLE, CONCERT_MESSAGE_DRAINING, {}};
      return;
    case Type::kFailAll:
      refuse_ = message.part.failure;
      scheduler_.FailQueued(message.part.failure);
      return;
    case Type::kAddSession:
      AddSession(message.link);
      return;
    default:
      break;
  }
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
      const QueueId id = scheduler_.AddQueue(message.session, message.queue.priority);
      CONCERT_CHECK(id != kNone);  // the control thread counts queues
      port.queues[message.queue.queue] = {
          .id = id, .next_ticket = message.queue.next_ticket, .removing = false};
      if (owner_of_.size() <= id) owner_of_.resize(id + 1);
      owner_of_[id] = {&port, message.queue.queue};
      return;
    }
    case Type::kRemoveQueue:
      RemoveLater(port, Removal::What::kQueue, message.queue.queue);
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
      RemoveLater(port, Removal::What::kBuffer, message.buffer.handle);
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

void Dispatcher::AddSession(const SessionLink& link) {
  auto port = std::make_unique<SessionPort>(link);
  if (port->has_ring()) {
    // Edge-triggered: every ring wakes, and nothing need be read. A read could block for ever,
    // since the client shares the descriptor's flags and may clear O_NONBLOCK.
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = port.get()}};
    CONCERT_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, link.event_fd, &event) == 0);
    rings_.push_back(port.get());
  }
  ports_.emplace(link.session, std::move(port));
  gauges_.sessions.store(static_cast<uint32_t>(ports_.size()), std::memory_order_relaxed);
}

void Dispatcher::RemoveSession(SessionPort& port) {
  port.removing = true;
  // Ops of other sessions that wait for this one's timelines on watched words would wait for
  // unmapped memory.
  std::erase_if(watches_, [&](const Watch& watch) {
    if (watch.session != port.link().session) return false;
    scheduler_.Fail(watch.op, {CONCERT_ABI_CANCELLED,
                               CONCERT_MESSAGE_WAIT_UNREACHABLE,
                               {watch.index, watch.value, LoadAcquire(*watch.word)}});
    return true;  // the op's other watches go when it is released
  });
  std::erase_if(removals_, [&](const Removal& removal) { return removal.port == &port; });
  std::erase_if(ending_queues_, [&](const auto& ending) { return ending.first == &port; });
  for (SessionPort::QueueEntry& queue : port.queues) {
    if (queue.id != kNone && !queue.removing) {
      queue.removing = true;
      scheduler_.RemoveQueue(queue.id, true);
    }
  }
  if (port.has_ring()) {
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, port.link().event_fd, nullptr);
    std::erase(rings_, &port);
  }
  removing_.push_back(&port);
}

// What the client published before it asked may still use the queue or buffer. The tail is read
// again, since it may have moved between this turn's reading and the client's request.
void Dispatcher::RemoveLater(SessionPort& port, Removal::What what, uint32_t handle) {
  Failure why;
  if (!port.broken && !port.ReadTail(why)) Break(port, why);
  removals_.push_back({&port, what, handle, port.tail()});
}

// Removes queues and buffers once all that was published before is admitted.
void Dispatcher::FinishRemovals() {
  for (size_t i = 0; i < removals_.size();) {
    const Removal removal = removals_[i];
    SessionPort& port = *removal.port;
    if (port.head() < removal.position && !port.broken) {
      ++i;
      continue;
    }
    removals_[i] = removals_.back();
    removals_.pop_back();
    if (removal.what == Removal::What::kQueue) {
      SessionPort::QueueEntry& entry = port.queues[removal.handle];
      entry.removing = true;
      scheduler_.RemoveQueue(entry.id, false);
      ending_queues_.emplace_back(&port, removal.handle);
    } else {
      // From here on no new op finds it.
      port.buffers[removal.handle] = {};
      port.buffer_releasing[removal.handle] = true;
      ReleaseBufferIfUnused(port, removal.handle);
    }
  }
}

// Answers for removed sessions of which nothing is left here.
void Dispatcher::ReleaseSessions() {
  for (size_t i = 0; i < removing_.size();) {
    SessionPort& port = *removing_[i];
    const bool ended =
        port.unfinished == 0 &&
        std::all_of(port.queues.begin(), port.queues.end(), [&](const SessionPort::QueueEntry& q) {
          return q.id == kNone || scheduler_.QueueEnded(q.id);
        });
    if (!ended) {
      ++i;
      continue;
    }
    for (const SessionPort::QueueEntry& queue : port.queues) {
      if (queue.id == kNone) continue;
      owner_of_[queue.id] = {};
      scheduler_.ReclaimQueue(queue.id);
    }
    const uint32_t session = port.link().session;
    removing_[i] = removing_.back();
    removing_.pop_back();
    ports_.erase(session);
    gauges_.sessions.store(static_cast<uint32_t>(ports_.size()), std::memory_order_relaxed);
    Tell({.type = ControlEvent::Type::kSessionReleased, .session = session});
  }
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
  for (size_t i = 0; i < ending_queues_.size();) {
    const auto [port, queue] = ending_queues_[i];
    SessionPort::QueueEntry& entry = port->queues[queue];
    if (!scheduler_.QueueEnded(entry.id)) {
      ++i;
      continue;
    }
    ending_queues_[i] = ending_queues_.back();
    ending_queues_.pop_back();
    owner_of_[entry.id] = {};
    scheduler_.ReclaimQueue(entry.id);
    entry = {};
    Tell({.type = ControlEvent::Type::kQueueReleased,
          .session = port->link().session,
          .handle = queue});
  }
}

void Dispatcher::Tell(ControlEvent event) {
  event.gpu = options_.scheduler.gpu;
  // The control thread never waits for a dispatcher, so it empties its box; its events per turn are
  // bounded.
  while (!control_.TryPush(event)) sched_yield();
}

void Dispatcher::Break(SessionPort& port, const Failure& why) {
  port.broken = true;
  Tell(
      {.type = ControlEvent::Type::kSessionBroken, .session = port.link().session, .failure = why});
}

}  // namespace concert::daemon
