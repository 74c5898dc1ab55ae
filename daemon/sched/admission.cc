// From descriptors in a ring to ops in the scheduler. A bad op is admitted with its failure and
// completes with it in its turn; a client that breaks the ring protocol loses its session.
#include <algorithm>

#include "daemon/quota/budget.h"
#include "daemon/sched/dispatcher.h"
#include "kernels/validate.h"

namespace concert::daemon {
namespace {

using kernels::Failure;
using kernels::InvalidArgument;

// The tickets before the op's own that it takes, too.
uint32_t CoveredBy(const concert_descriptor& descriptor) {
  return descriptor.kind == CONCERT_OP_PROGRAM ? descriptor.body.program.covered : 0;
}

Company::As AsCompany(const concert_descriptor& descriptor) {
  if (descriptor.kind == CONCERT_OP_PROGRAM) return Company::As::kRun;
  const bool could_be_run = (descriptor.flags & CONCERT_OP_COULD_BE_RUN) != 0;
  return could_be_run ? Company::As::kCouldBeRun : Company::As::kOp;
}

}  // namespace

// Reads tails before the mailbox is read: a handle that the control thread gave out before the
// client published an op that uses it is then known by the time the op is admitted.
void Dispatcher::ReadRings(Time now) {
  const bool all = !refuse_.ok() || lease_holder_ != nullptr;  // who asks whether nothing is left
  rings_.LookAt(now, all, [this](SessionPort& port) {
    if (port.broken || !port.TailMoved()) return false;
    Failure why;
    if (!port.ReadTail(why)) Break(port, why);
    return true;
  });
}

bool Dispatcher::Admit(Time now) {
  const bool gpu_waits = scheduler_.plans_in_flight() == 0;
  uint32_t budget = PerTurn(Work::kOps);
  unread_ = false;
  visited_.clear();
  for (uint32_t rings = 0; rings < PerTurn(Work::kRings) && budget > 0; ++rings) {
    SessionPort* const port = rings_.Next();
    if (port == nullptr) break;
    if (port->broken) continue;
    const uint32_t limit = std::min(budget, PerTurn(Work::kOpsOfRing));
    const uint32_t admitted = AdmitFrom(*port, limit, gpu_waits, now);
    budget -= admitted;
    rings_.SetStuck(*port, admitted == 0 && !port->broken);
    // One that gave nothing is looked at again before it gets a turn.
    if (admitted > 0) visited_.push_back(port);
    if (!port->removals.empty()) FinishRemovals(*port);
  }
  for (SessionPort* port : visited_) rings_.List(*port);
  unread_ |= rings_.listed();
  return budget < PerTurn(Work::kOps) || rings_.listed();
}

// Returns how many ops were admitted, refused ones among them.
uint32_t Dispatcher::AdmitFrom(SessionPort& port, uint32_t limit, bool gpu_waits, Time now) {
  bool all = !gpu_waits;
  Failure why;
  uint32_t available = port.Available(why);
  if (!why.ok()) {
    Break(port, why);
    return 0;
  }
  // A client that does not take its failures is not waited for.
  unread_ |= available > 0;
  available = std::min({available, limit, scheduler_.free_ops()});
  uint32_t admitted = 0;
  for (uint32_t queue = kNone; admitted < available; ++admitted) {
    if (!port.ops.Take(1)) break;  // the rest stays in the ring
    concert_descriptor descriptor;
    if (!port.Read(descriptor, why)) Break(port, why);
    if (port.broken || !AdmitOne(port, descriptor, now)) {
      port.ops.Give(1);
      break;
    }
    // One behind another of its queue has time until that is launched. Admitting all of a chain
    // of 16 takes 4 us, which its first op would wait. But which way a collective goes depends on
    // how long GEMMs run beside it: two of eight made it hurry, which cost the other six a round of
    // tiles each (2048x4096x8192 beside 256 MiB: 1738 us instead of 1499; two H100s).
    all = all || kernels::IsCollective(descriptor.kind);
    const bool chained = !all && descriptor.queue == queue;
    queue = descriptor.queue;
    if (!chained) continue;
    ++admitted;
    break;
  }
  port.PublishHead();
  return admitted;
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
  const uint32_t covered = CoveredBy(descriptor);
  const uint64_t ticket = queue.next_ticket + covered;
  if (descriptor.ticket != ticket || covered >= CONCERT_MAX_PROGRAM_OPS) {
    Break(port, InvalidArgument(CONCERT_MESSAGE_RING_TICKET, descriptor.queue, descriptor.ticket,
                                queue.next_ticket));
    return false;
  }
  const OpId id = scheduler_.AllocateOp();
  CONCERT_CHECK(id != kNone);
  queue.next_ticket = ticket + 1;
  OpSlot& slot = scheduler_.slot(id);
  slot.op.kind = descriptor.kind;
  slot.op.session = port.link().session;
  slot.op.queue = descriptor.queue;
  slot.op.ticket = ticket;
  slot.op.covered = covered;
  slot.op.deadline_ns = descriptor.deadline_ns;
  admitted_[id] = {.late = draining_ && port.head() > port.drain_end};
  late_ops_ += admitted_[id].late ? 1 : 0;
  if (const Failure failure = AdmitOp(port, descriptor, id); !failure.ok()) {
    slot.failure = failure;
    DropWatches(id);
    slot.local_waits.clear();
    slot.op.buffers.clear();
    slot.op.waits.clear();
  } else if (slot.op.work.runs_on == policies::RunsOn::kSms) {
    const uint64_t timeline = CONCERT_TIMELINE_ID(port.link().session, descriptor.queue);
    port.SetCompany(company_.Admitted(timeline, AsCompany(descriptor), port.at_work, now));
  }
  for (const uint32_t buffer : slot.op.buffers) ++port.buffer_uses[buffer];
  ++port.unfinished;
  scheduler_.Submit(id, queue.id, now);
  return true;
}

Failure Dispatcher::AdmitOp(SessionPort& port, const concert_descriptor& descriptor, OpId id) {
  Op& op = scheduler_.slot(id).op;
  const kernels::OpKind* kind = kernels::FindOpKind(descriptor.kind);
  Membership membership;
  const bool collective = kind != nullptr && kind->collective;
  const Failure member = collective ? AdmitMember(port, descriptor, id, membership) : Failure{};
  CONCERT_RETURN_IF_FAILED(refuse_);
  CONCERT_RETURN_IF_FAILED(AdmitHeader(descriptor, kind));
  CONCERT_RETURN_IF_FAILED(member);
  CONCERT_RETURN_IF_FAILED(AdmitBody(port, *kind, descriptor, membership, op));
  return AdmitWaits(port, descriptor, id);
}

Failure Dispatcher::AdmitHeader(const concert_descriptor& descriptor, const kernels::OpKind* kind) {
  if (kind == nullptr) return kernels::UnknownKind(descriptor.kind);
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
Failure Dispatcher::AdmitWaits(SessionPort& port, const concert_descriptor& descriptor, OpId id) {
  OpSlot& slot = scheduler_.slot(id);
  uint8_t unmet = 0;
  for (uint32_t i = 0; i < descriptor.wait_count; ++i) {
    const concert_wait_entry& wait = descriptor.waits[i];
    slot.op.waits.push_back(wait);
    const uint32_t session = static_cast<uint32_t>(wait.timeline >> 32);
    const uint32_t index = static_cast<uint32_t>(wait.timeline);
    const auto found = ports_.find(session);
    const bool user = (index & CONCERT_TIMELINE_USER) != 0;
    const uint32_t number = index & ~CONCERT_TIMELINE_USER;
    // One answer for what does not exist and what is another user's: nobody learns which it is.
    if (found == ports_.end() || found->second->removing ||
        found->second->link().uid != port.link().uid ||
        number >= (user ? found->second->link().memory->layout().max_user_timelines
                        : found->second->link().memory->layout().max_queues)) {
      return {CONCERT_ABI_NOT_FOUND, CONCERT_MESSAGE_NO_TIMELINE, {i, session, index}};
    }
    SessionPort& other = *found->second;
    const QueueId queue = user ? kNone : other.queues[number].id;
    // One that has ended in this turn goes at its end, whoever waits for it by then.
    if (queue != kNone && !scheduler_.QueueEnded(queue)) {
      const OpSlot::LocalWait local{queue, wait.value, static_cast<uint8_t>(i)};
      slot.local_waits.push_back(local);
      unmet += scheduler_.WaitMet(local) ? 0 : 1;
      continue;
    }
    const uint64_t& word =
        user ? other.link().memory->user_timeline(number) : other.link().memory->timeline(number);
    if (LoadAcquire(word) >= wait.value) continue;
    const size_t home = user ? other.queues.size() + number : number;
    watches_.Add(other.watched[home], word, id, static_cast<uint8_t>(i), wait.value);
    slot.watched_waits |= static_cast<uint8_t>(1u << i);
    ++unmet;
  }
  if (unmet == 0) return {};
  if (!port.waits.Take(unmet)) {
    return {CONCERT_ABI_RESOURCE_EXHAUSTED,
            CONCERT_MESSAGE_TOO_MANY_WAITS,
            {unmet, port.link().account->limit(Resource::kWaits).per_user}};
  }
  admitted_[id].charged_waits = unmet;
  return {};
}

// Counts a collective's part as the rank's next. Before anything else about the op is checked: a
// part that is refused still counts, and Complete tells the other ranks, so it must know whose it
// is.
Failure Dispatcher::AdmitMember(SessionPort& port, const concert_descriptor& descriptor, OpId id,
                                Membership& membership) {
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
  membership = member->membership;
  admitted_[id].counts = true;
  Op& op = scheduler_.slot(id).op;
  op.collective.communicator = body.communicator;
  op.collective.sequence = body.sequence;
  return {};
}

Failure Dispatcher::AdmitBody(const SessionPort& port, const kernels::OpKind& kind,
                              const concert_descriptor& descriptor, const Membership& membership,
                              Op& op) {
  const kernels::AdmitContext context{.gpu = options_.scheduler.gpu,
                                      .buffers = port.buffers,
                                      .ranks = membership.ranks,
                                      .rank = membership.rank};
  return kind.admit(descriptor, context, op);
}

}  // namespace concert::daemon
