// From descriptors in a ring to ops in the scheduler. A bad op is admitted with its failure and
// completes with it in its turn; a client that breaks the ring protocol loses its session.
#include <algorithm>

#include "daemon/sched/dispatcher.h"
#include "kernels/validate.h"

namespace concert::daemon {
namespace {

using kernels::Failure;
using kernels::InvalidArgument;

// Ops admitted from one ring before the next ring has its turn.
constexpr uint32_t kBatch = 64;

}  // namespace

// Reads every tail before the mailbox is read: a handle that the control thread gave out before the
// client published an op that uses it is then known by the time the op is admitted.
void Dispatcher::ReadRings() {
  for (SessionPort* port : rings_) {
    if (port->broken || port->removing) continue;
    Failure why;
    if (!port->ReadTail(why)) Break(*port, why);
  }
}

bool Dispatcher::Admit(Time now) {
  bool progress = false;
  const bool gpu_waits = scheduler_.plans_in_flight() == 0;
  unread_ = false;
  for (size_t i = 0; i < rings_.size(); ++i) {
    SessionPort& port = *rings_[(next_ring_ + i) % rings_.size()];
    if (port.broken || port.removing) continue;
    Failure why;
    uint32_t available = port.Available(why);
    if (!why.ok()) {
      Break(port, why);
      continue;
    }
    // A client that does not take its failures is not waited for.
    unread_ |= available > 0;
    available = std::min(
        {available, kBatch,
         options_.max_ops_per_session - std::min(options_.max_ops_per_session, port.unfinished)});
    for (uint32_t queue = kNone; available > 0; --available) {
      concert_descriptor descriptor;
      if (!port.Read(descriptor, why)) {
        Break(port, why);
        break;
      }
      if (!AdmitOne(port, descriptor, now)) break;
      progress = true;
      // One behind another of its queue has time until that is launched. Admitting all of a chain
      // of 16 takes 4 us, which its first op would wait.
      if (gpu_waits && descriptor.queue == queue) break;
      queue = descriptor.queue;
    }
    port.PublishHead();
  }
  if (!rings_.empty()) next_ring_ = (next_ring_ + 1) % rings_.size();
  return progress;
}

// False if the client broke the protocol and its session is over.
bool Dispatcher::AdmitOne(SessionPort& port, const concert_descriptor& descriptor, Time now) {
  const uint64_t gpu = options_.scheduler.gpu;
  if (descriptor.queue >= port.queues.size() || port.queues[descriptor.queue].id == kNone ||
      port.queues[descriptor.queue].removing) {
    Break(port, InvalidArgument(CONCERT_MESSAGE_NO_QUEUE, gpu, descriptor.queue));
    return false;
  }
  SessionPort::QueueEntry& queue = port.queues[descriptor.queue];
  if (descriptor.ticket != queue.next_ticket) {
    Break(port, InvalidArgument(CONCERT_MESSAGE_RING_TICKET, descriptor.queue, descriptor.ticket,
                                queue.next_ticket));
    return false;
  }
  // The pool holds max_ops_per_session for every session, so it cannot be exhausted.
  const OpId id = scheduler_.AllocateOp();
  CONCERT_CHECK(id != kNone);
  ++queue.next_ticket;
  OpSlot& slot = scheduler_.slot(id);
  slot.op.kind = descriptor.kind;
  slot.op.session = port.link().session;
  slot.op.queue = descriptor.queue;
  slot.op.ticket = descriptor.ticket;
  slot.op.deadline_ns = descriptor.deadline_ns;
  if (const Failure failure = AdmitOp(port, descriptor, id); !failure.ok()) {
    slot.failure = failure;
    DropWatches(id);
    slot.local_wait_count = 0;
    slot.op.buffer_count = 0;
    slot.op.wait_count = 0;
  }
  for (int i = 0; i < slot.op.buffer_count; ++i) ++port.buffer_uses[slot.op.buffers[i]];
  ++port.unfinished;
  scheduler_.Submit(id, queue.id, now);
  return true;
}

Failure Dispatcher::AdmitOp(SessionPort& port, const concert_descriptor& descriptor, OpId id) {
  Op& op = scheduler_.slot(id).op;
  const kernels::OpKind* kind = kernels::FindOpKind(descriptor.kind);
  uint32_t ranks = 0;
  const bool collective = kind != nullptr && kind->collective;
  const Failure membership = collective ? AdmitMember(port, descriptor, op, ranks) : Failure{};
  CONCERT_RETURN_IF_FAILED(refuse_);
  CONCERT_RETURN_IF_FAILED(AdmitHeader(descriptor, kind));
  CONCERT_RETURN_IF_FAILED(membership);
  CONCERT_RETURN_IF_FAILED(AdmitBody(port, *kind, descriptor, ranks, op));
  return AdmitWaits(port, descriptor, id);
}

Failure Dispatcher::AdmitHeader(const concert_descriptor& descriptor, const kernels::OpKind* kind) {
  if (kind == nullptr) {
    return InvalidArgument(CONCERT_MESSAGE_UNKNOWN_KIND, descriptor.kind,
                           kernels::AllOpKinds().back().kind);
  }
  CONCERT_RETURN_IF_FAILED(
      kernels::CheckReserved(descriptor, kernels::HeaderReservedIsZero(descriptor)));
  if (descriptor.wait_count > CONCERT_MAX_WAITS) {
    return InvalidArgument(CONCERT_MESSAGE_FIELD_RANGE, CONCERT_FIELD_WAIT_COUNT,
                           descriptor.wait_count, 0, CONCERT_MAX_WAITS);
  }
  return {};
}

// Sorts the waits into those the scheduler can order on the device and those whose word must be
// watched.
Failure Dispatcher::AdmitWaits(const SessionPort& port, const concert_descriptor& descriptor,
                               OpId id) {
  OpSlot& slot = scheduler_.slot(id);
  slot.op.wait_count = descriptor.wait_count;
  for (uint32_t i = 0; i < descriptor.wait_count; ++i) {
    const concert_wait_entry& wait = slot.op.waits[i] = descriptor.waits[i];
    const uint32_t session = static_cast<uint32_t>(wait.timeline >> 32);
    const uint32_t index = static_cast<uint32_t>(wait.timeline);
    const auto found = ports_.find(session);
    if (found == ports_.end() || found->second->removing) {
      return {CONCERT_ABI_NOT_FOUND, CONCERT_MESSAGE_NO_TIMELINE, {i, session, index}};
    }
    SessionPort& other = *found->second;
    if (other.link().uid != port.link().uid) {
      return {CONCERT_ABI_PERMISSION_DENIED, CONCERT_MESSAGE_FOREIGN_TIMELINE, {i, session}};
    }
    const concert_layout& layout = other.link().memory->layout();
    const bool user = (index & CONCERT_TIMELINE_USER) != 0;
    const uint32_t number = index & ~CONCERT_TIMELINE_USER;
    if (number >= (user ? layout.max_user_timelines : layout.max_queues)) {
      return {CONCERT_ABI_NOT_FOUND, CONCERT_MESSAGE_NO_TIMELINE, {i, session, index}};
    }
    if (!user && other.queues[number].id != kNone) {
      slot.local_waits[slot.local_wait_count++] = {other.queues[number].id, wait.value,
                                                   static_cast<uint8_t>(i)};
      continue;
    }
    const uint64_t& word =
        user ? other.link().memory->user_timeline(number) : other.link().memory->timeline(number);
    if (LoadAcquire(word) >= wait.value) continue;
    slot.watched_waits |= static_cast<uint8_t>(1u << i);
    watches_.push_back({id, static_cast<uint8_t>(i), session, &word, wait.value});
  }
  return {};
}

// Counts a collective's part as the rank's next. Before anything else about the op is checked: a
// part that is refused still counts, and Complete tells the other ranks, so it must know whose it
// is.
Failure Dispatcher::AdmitMember(SessionPort& port, const concert_descriptor& descriptor, Op& op,
                                uint32_t& ranks) {
  const concert_collective_body& body = descriptor.body.collective;
  SessionPort::Member* member = port.FindMember(body.communicator);
  if (member == nullptr) {
    return {CONCERT_ABI_NOT_FOUND, CONCERT_MESSAGE_NO_COMMUNICATOR, {body.communicator}};
  }
  if (body.sequence != member->next_sequence) {
    return InvalidArgument(CONCERT_MESSAGE_COLLECTIVE_SEQUENCE, body.sequence,
                           member->membership.communicator, member->next_sequence);
  }
  ++member->next_sequence;
  ranks = member->membership.ranks;
  op.collective.communicator = body.communicator;
  op.collective.sequence = body.sequence;
  return {};
}

Failure Dispatcher::AdmitBody(const SessionPort& port, const kernels::OpKind& kind,
                              const concert_descriptor& descriptor, uint32_t ranks, Op& op) {
  const kernels::AdmitContext context{
      .gpu = options_.scheduler.gpu, .buffers = port.buffers, .ranks = ranks};
  return kind.admit(descriptor, context, op);
}

}  // namespace concert::daemon
