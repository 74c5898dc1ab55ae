#include "daemon/sched/races.h"

#include <algorithm>

#include "kernels/op_table.h"
#include "proto/ring/control_abi.h"

namespace concert::daemon {
namespace {

using kernels::Access;
using kernels::Accesses;
using kernels::AccessesOf;

bool IsCollective(const OpSlot& slot) { return slot.op.work.runs_on == policies::RunsOn::kLinks; }

// Parts of one collective, which starts them together. What its ranks may not share is the
// rendezvous's to say.
bool SameCollective(const OpSlot& a, const OpSlot& b) {
  if (!IsCollective(a) || !IsCollective(b)) return false;
  const kernels::CollectiveArgs &first = a.op.collective, &second = b.op.collective;
  return CONCERT_COMMUNICATOR_OF(first.communicator) ==
             CONCERT_COMMUNICATOR_OF(second.communicator) &&
         first.sequence == second.sequence;
}

// Fills in what the two share. False if no byte, or if both only read it.
bool Share(const Accesses& earlier, const Accesses& later, int& pieces_left, Races::Race& race) {
  for (const Access& before : earlier.list()) {
    for (const Access& after : later.list()) {
      if (!before.writes() && !after.writes()) continue;
      if (before.mode == kernels::AccessMode::kWriteSome ||
          after.mode == kernels::AccessMode::kWriteSome)
        continue;
      if (!kernels::Meet(before.memory, after.memory, pieces_left)) continue;
      const kernels::ByteRange a = before.memory.Bounds(), b = after.memory.Bounds();
      race.earlier_access = before;
      race.later_access = after;
      race.bytes = {std::max(a.begin, b.begin), std::min(a.end, b.end)};
      return true;
    }
  }
  return false;
}

}  // namespace

Races::Races(const OpPool& pool, uint32_t max_ops, uint32_t max_queues)
    : pool_(pool),
      records_(std::make_unique_for_overwrite<Record[]>(max_ops)),
      queues_(max_queues),
      newest_queue_(max_queues, kNone) {}

void Races::Submit(OpId op, uint32_t session, std::span<const OpId> direct, bool opaque) {
  AddToQueue(op, session);
  Record& record = records_[op];
  record.next_unchecked = kNone;
  (unchecked_.first == kNone ? unchecked_.first : records_[unchecked_.last].next_unchecked) = op;
  unchecked_.last = op;
  SetBounds(op);
  record.opaque = opaque;
  record.clock.clear();
  for (const OpId before : direct) Follow(op, before);
}

void Races::AddToQueue(OpId op, uint32_t session) {
  const QueueId id = pool_[op].queue;
  Queue& queue = queues_[id];
  Record& record = records_[op];
  record.admission = pool_[op].admission;
  record.newer = kNone;
  record.older = queue.newest;
  queue.newest = op;
  if (record.older != kNone) {
    records_[record.older].newer = op;
    return;
  }
  QueueId& newest = newest_queue_[session];
  queue.session = session;
  queue.newer = kNone;
  queue.older = newest;
  if (newest != kNone) queues_[newest].newer = id;
  newest = id;
}

void Races::SetBounds(OpId op) {
  Record& record = records_[op];
  record.touched.clear();
  record.written = {};
  if (!pool_[op].failure.ok()) return;
  const Accesses accesses = AccessesOf(pool_[op].op);
  for (const Access& access : accesses.list()) {
    const kernels::ByteRange bounds = access.memory.Bounds();
    record.touched.push_back(bounds);
    if (access.writes()) record.written.Extend(bounds);
  }
}

// Takes over what `direct` is behind, and itself.
void Races::Follow(OpId op, OpId direct) {
  const Record& before = records_[direct];
  const OpSlot& slot = pool_[direct];
  records_[op].opaque |= before.opaque || IsCollective(slot);
  Advance(op, {slot.queue, slot.admission});
  for (const Tick& tick : before.clock) Advance(op, tick);
}

void Races::Advance(OpId op, const Tick& tick) {
  // Its own queue's ops are before it anyway, and what has ended is before everything.
  if (tick.queue == pool_[op].queue || tick.admission <= queues_[tick.queue].ended) return;
  Record& record = records_[op];
  for (Tick& known : record.clock) {
    if (known.queue != tick.queue) continue;
    known.admission = std::max(known.admission, tick.admission);
    return;
  }
  if (record.clock.full()) {
    record.opaque = true;
    return;
  }
  record.clock.push_back(tick);
}

void Races::End(OpId op) {
  const QueueId id = pool_[op].queue;
  Queue& queue = queues_[id];
  queue.ended = records_[op].admission;
  if (records_[op].newer != kNone) {
    records_[records_[op].newer].older = kNone;
    return;
  }
  queue.newest = kNone;
  (queue.newer == kNone ? newest_queue_[queue.session] : queues_[queue.newer].older) = queue.older;
  if (queue.older != kNone) queues_[queue.older].newer = queue.newer;
}

bool Races::Next(absl::FunctionRef<bool(const OpSlot&)> ended, Race& race) {
  while (unchecked_.first != kNone) {
    const OpId op = unchecked_.first;
    unchecked_.first = records_[op].next_unchecked;
    if (Check(op, ended, race)) return true;
  }
  return false;
}

// The admission of the queue's last op that the later one is ordered behind, and so behind all
// before.
uint64_t Races::OrderedUpTo(QueueId queue, OpId later) const {
  for (const Tick& tick : records_[later].clock) {
    if (tick.queue == queue) return tick.admission;
  }
  return 0;
}

// Whether they may share what one of them writes, by their bounds: nearly always not.
bool Races::Near(OpId a, OpId b) const {
  const Record &first = records_[a], &second = records_[b];
  bool near = false;  // without a branch per operand
  for (const kernels::ByteRange& range : second.touched) near |= first.written.Overlaps(range);
  for (const kernels::ByteRange& range : first.touched) near |= second.written.Overlaps(range);
  return near;
}

// Whether a later op can race with this one: it touches memory, and does not wait for something
// that may come after the later op.
bool Races::MayRace(OpId op) const {
  const OpSlot& slot = pool_[op];
  if (!slot.may_launch || !slot.failure.ok()) return false;
  return !records_[op].opaque || slot.state == OpState::kLaunched ||
         slot.state == OpState::kOffered;
}

// The nearest of its races: a wait for that one is enough.
bool Races::Check(OpId later, absl::FunctionRef<bool(const OpSlot&)> ended, Race& race) const {
  const QueueId own = pool_[later].queue;
  if (records_[later].opaque || !pool_[later].may_launch) return false;
  Search search;
  for (QueueId queue = newest_queue_[queues_[own].session]; queue != kNone;
       queue = queues_[queue].older) {
    if (queue != own) CheckQueue(queue, later, ended, search, race);
  }
  return search.nearest != 0;
}

// Against the ops of another queue of the session, the newest first.
void Races::CheckQueue(QueueId queue, OpId later, absl::FunctionRef<bool(const OpSlot&)> ended,
                       Search& search, Race& race) const {
  const uint64_t before = std::max(OrderedUpTo(queue, later), search.nearest);
  const uint64_t now = records_[later].admission;
  for (OpId op = queues_[queue].newest; op != kNone && records_[op].admission > before;
       op = records_[op].older) {
    if (search.comparisons-- <= 0) return;
    if (records_[op].admission > now || !Near(op, later) || !MayRace(op)) continue;
    if (SameCollective(pool_[op], pool_[later])) continue;
    if (search.close_looks == kMaxCloseLooks) search.accesses = AccessesOf(pool_[later].op);
    if (search.close_looks-- <= 0) return;
    Race found{.earlier = op, .later = later};
    const Accesses earlier = AccessesOf(pool_[op].op);
    if (!Share(earlier, search.accesses, search.pieces, found) || ended(pool_[op])) continue;
    race = found;
    search.nearest = records_[op].admission;
    return;
  }
}

}  // namespace concert::daemon
