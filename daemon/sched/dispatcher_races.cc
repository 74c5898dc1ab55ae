// Races that the scheduler finds among new ops: said to the client or to the log.
#include "daemon/sched/dispatcher.h"

namespace concert::daemon {
namespace {

using kernels::Access;
using kernels::Failure;

// Of one session; the log samples what all sessions cause.
constexpr Time kLoggedPeriodNs = 100'000'000;

uint64_t Tagged(uint64_t number, const OpSlot& slot, const Access& access) {
  return concert_message_tagged(number, concert_message_access(slot.op.kind, access.field));
}

uint64_t NameOf(const OpSlot& slot) {
  return concert_message_tagged(slot.op.ticket, static_cast<uint16_t>(slot.op.queue));
}

}  // namespace

void Dispatcher::CheckRaces(Time now) {
  // The end of a collective's part may be seen before the issuer has said that it is launched.
  const auto ended = [this](const OpSlot& slot) {
    const QueueOwner& owner = owner_of_[slot.queue];
    return LoadAcquire(owner.port->timeline(owner.queue)) >= slot.op.ticket;
  };
  Races::Race race;
  while (scheduler_.races()->Next(ended, race)) {
    const Failure failure = FailureOf(race);
    if (options_.sim_races == SimRaces::kError) {
      scheduler_.Fail(race.later, failure);
    } else {
      TellOfRace(PortOf(race.later), failure, now);
    }
  }
}

Failure Dispatcher::FailureOf(const Races::Race& race) {
  const OpSlot& earlier = scheduler_.slot(race.earlier);
  const OpSlot& later = scheduler_.slot(race.later);
  const uint32_t index = race.later_access.buffer;
  const kernels::BufferRange& buffer = PortOf(race.later).buffers[index];
  const uint64_t first = race.bytes.begin - buffer.address;
  const uint64_t last = race.bytes.end - 1 - buffer.address;
  return {CONCERT_ABI_FAILED_PRECONDITION,
          CONCERT_MESSAGE_RACE,
          {index | uint32_t{buffer.generation} << kernels::kBufferIndexBits, NameOf(earlier),
           NameOf(later), Tagged(first, earlier, race.earlier_access),
           Tagged(last, later, race.later_access)}};
}

// One that the mailbox has no room for is not told: the log shows samples anyway.
void Dispatcher::TellOfRace(SessionPort& port, const Failure& failure, Time now) {
  if (now < port.next_race) return;
  port.next_race = now + kLoggedPeriodNs;
  events_.TryPush(
      {.type = ControlEvent::Type::kRace, .session = port.link().session, .failure = failure});
}

}  // namespace concert::daemon
