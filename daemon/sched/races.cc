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
      newest_(max_queues, kNone),
      ended_(max_queues) {}

void Races::Submit(OpId op, uint32_t session, std::span<const OpId> direct, bool opaque) {
  Record& record = records_[op];
  record.session = session;
  record.newer = kNone;
  record.older = newest_[session];
  if (record.older != kNone) records_[record.older].newer = op;
  newest_[session] = op;
  record.next_unchecked = kNone;
  (unchecked_.first == kNone ? unchecked_.first : records_[unchecked_.last].next_unchecked) = op;
  unchecked_.last = op;
  SetBounds(op);
  record.opaque = opaque;
  record.clock.clear();
  for (const OpId before : direct) Follow(op, before);
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
  if (tick.queue == pool_[op].queue || tick.admission <= ended_[tick.queue]) return;
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
  const Record& record = records_[op];
  (record.newer == kNone ? newest_[record.session] : records_[record.newer].older) = record.older;
  if (record.older != kNone) records_[record.older].newer = record.newer;
  ended_[pool_[op].queue] = pool_[op].admission;
}

bool Races::Next(absl::FunctionRef<bool(const OpSlot&)> ended, Race& race) {
  while (unchecked_.first != kNone) {
    const OpId op = unchecked_.first;
    unchecked_.first = records_[op].next_unchecked;
    if (Check(op, ended, race)) return true;
  }
  return false;
}

bool Races::Ordered(OpId earlier, OpId later) const {
  const OpSlot& slot = pool_[earlier];
  if (slot.queue == pool_[later].queue || SameCollective(slot, pool_[later])) return true;
  const auto& clock = records_[later].clock;
  return std::any_of(clock.begin(), clock.end(), [&](const Tick& tick) {
    return tick.queue == slot.queue && tick.admission >= slot.admission;
  });
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

bool Races::Check(OpId later, absl::FunctionRef<bool(const OpSlot&)> ended, Race& race) const {
  const Record& record = records_[later];
  if (record.opaque || !pool_[later].may_launch) return false;
  Accesses accesses;  // when first needed
  int comparisons = 0, close_looks = 0, pieces_left = kMaxPieces;
  for (OpId op = record.older; op != kNone && comparisons < kMaxComparisons;
       op = records_[op].older, ++comparisons) {
    if (!Near(op, later) || !MayRace(op) || Ordered(op, later)) continue;
    if (close_looks == kMaxCloseLooks) return false;
    if (close_looks++ == 0) accesses = AccessesOf(pool_[later].op);
    if (!Share(AccessesOf(pool_[op].op), accesses, pieces_left, race) || ended(pool_[op])) continue;
    race.earlier = op;
    race.later = later;
    return true;
  }
  return false;
}

}  // namespace concert::daemon
