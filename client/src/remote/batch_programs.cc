#include "client/src/remote/batch_programs.h"

#include "client/src/remote/program.h"

namespace concert::client {
namespace {

// How long the room of programs that were given up may take to come: the daemon lets go of them
// when the dispatchers have.
constexpr int64_t kGiveWayNs = 200'000'000;

// In which company, by the flags of a reply.
uint32_t BetterAsOps(uint32_t flags) {
  if ((flags & CONCERT_PROGRAM_WHILE_ALONE) == 0) return 0;
  return (flags & CONCERT_PROGRAM_BESIDE_RUNS) != 0 ? CONCERT_COMPANY_OF_OPS : CONCERT_COMPANY;
}

}  // namespace

void BatchPrograms::After(Ring& ring, const Ring::AfterBatch& after) {
  if (after.released != 0) Release(after.released);
  if (!after.wanted && !waiting_.load(std::memory_order_relaxed)) return;
  // Whoever has it does what is to be done, or gives up what this would ask for.
  if (!turn_.TryTake()) {
    if (after.wanted) ring.WithBatches([&](auto& all) { all.Postponed(after.wanted->batch); });
    return;
  }
  TakeAnswer(/*deadline=*/nullptr);
  if (after.wanted) Ask(ring, *after.wanted);
  turn_.GiveBack();
}

void BatchPrograms::Ask(Ring& ring, const BatchToRegister& wanted) {
  if (asked_.ring != nullptr) {
    ring.WithBatches([&](auto& all) { all.Postponed(wanted.batch); });
    return;
  }
  // A buffer of it may have been freed between the batch's end and here.
  bool still = false;
  ring.WithBatches([&](auto& all) { still = all.Wants(wanted.batch); });
  if (!still) return;
  const UniqueFd file = ended_.load() ? UniqueFd() : ProgramFile({}, wanted.ops);
  concert_create_program request{};
  request.gpu = ring.gpu();
  request.op_count = static_cast<uint32_t>(wanted.ops.size());
  request.flags = CONCERT_PROGRAM_OF_BATCH;
  const ControlSocket::Posted posted =
      file ? control_.Post(&request, file.get()) : ControlSocket::Posted::kFailed;
  if (posted != ControlSocket::Posted::kYes) {
    ring.WithBatches([&](auto& all) {
      if (posted == ControlSocket::Posted::kBusy) {
        all.Postponed(wanted.batch);
      } else {
        all.Registered(wanted.batch, {});
      }
    });
    return;
  }
  asked_ = {.ring = &ring, .batch = wanted.batch};
  waiting_.store(true, std::memory_order_relaxed);
}

void BatchPrograms::TakeAnswer(const Deadline* deadline) {
  const Asked asked = asked_;
  if (asked.ring == nullptr) return;
  concert_program_reply reply{};
  if (!control_.Collect(deadline, &reply)) return;
  RepeatedBatches::Program program;
  if (reply.reply.status == CONCERT_ABI_OK) {
    program = {.handle = reply.program, .better_as_ops = BetterAsOps(reply.flags)};
  }
  bool kept = false;
  asked.ring->WithBatches([&](auto& all) { kept = all.Registered(asked.batch, program); });
  asked_ = {};
  waiting_.store(false, std::memory_order_relaxed);
  if (!kept && program.handle != 0) Release(program.handle);
}

void BatchPrograms::Release(uint32_t program) {
  control_.ReleaseSoon(CONCERT_CONTROL_RELEASE_BUFFER, program);
}

// A program that has been asked for counts, so its answer is waited for; if that comes too late,
// TakeAnswer finds that its batch was forgotten.
void BatchPrograms::AwaitAnswer(const Deadline& deadline) {
  if (!turn_.Take(deadline)) return;
  TakeAnswer(&deadline);
  turn_.GiveBack();
}

template <typename Forget>
bool BatchPrograms::GiveUpWhat(Forget forget) {
  bool any = false;
  for (const auto& ring : rings_) {
    RepeatedBatches::Released released;
    ring->WithBatches([&](RepeatedBatches& all) { released = forget(all); });
    for (const uint32_t program : released.span()) Release(program);
    any |= released.count > 0;
  }
  return any;
}

void BatchPrograms::ForgetBuffer(uint32_t buffer, const Deadline& deadline) {
  AwaitAnswer(deadline);
  GiveUpWhat([buffer](RepeatedBatches& all) { return all.ForgetBuffer(buffer); });
}

void BatchPrograms::ForgetQueue(uint32_t queue, const Deadline& deadline) {
  AwaitAnswer(deadline);
  GiveUpWhat([queue](RepeatedBatches& all) { return all.ForgetQueue(queue); });
}

bool BatchPrograms::GiveUp(const Deadline& deadline, Deadline* until) {
  AwaitAnswer(deadline);
  // Around both: who finds that another has given them up must see until when room may come.
  const MutexLock lock(room_mutex_);
  if (GiveUpWhat([](RepeatedBatches& all) { return all.ForgetAll(); })) {
    ended_.store(true);
    room_comes_ = Deadline(kGiveWayNs);
  }
  *until = room_comes_;
  return !until->passed();
}

}  // namespace concert::client
