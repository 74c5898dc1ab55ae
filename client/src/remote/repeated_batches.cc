#include "client/src/remote/repeated_batches.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace concert::client {
namespace {

// What a program can hold.
bool IsPlainOp(uint16_t kind) {
  switch (kind) {
    case CONCERT_OP_ALL_REDUCE:
    case CONCERT_OP_ALL_GATHER:
    case CONCERT_OP_REDUCE_SCATTER:
    case CONCERT_OP_ALL_TO_ALL:
    case CONCERT_OP_BROADCAST:
    case CONCERT_OP_BARRIER:
    case CONCERT_OP_PROGRAM:
      return false;
    default:
      return true;
  }
}

}  // namespace

// Ops of one queue, which follow one another as a program's do. Only the first may wait: then all
// do, and so does the run.
bool RepeatedBatches::MayRepeat(const BatchView& batch) {
  if (batch.count < kMinOps || batch.count > CONCERT_MAX_PROGRAM_OPS) return false;
  for (uint32_t i = 0; i < batch.count; ++i) {
    const concert_descriptor& op = batch[i];
    const bool waits = i > 0 && op.wait_count != 0;
    if (op.queue != batch[0].queue || waits || op.deadline_ns != 0 || op.flags != 0 ||
        !IsPlainOp(op.kind)) {
      return false;
    }
  }
  return true;
}

bool RepeatedBatches::Same(const Entry& entry, const BatchView& batch) {
  if (entry.queue != batch[0].queue || entry.ops.size() != batch.count) return false;
  for (uint32_t i = 0; i < batch.count; ++i) {
    const concert_descriptor& op = batch[i];
    if (op.kind != entry.ops[i].kind ||
        std::memcmp(op.body.raw, entry.ops[i].body.raw, sizeof(op.body.raw)) != 0) {
      return false;
    }
  }
  return true;
}

RepeatedBatches::Program RepeatedBatches::Find(const BatchView& batch) {
  ++came_;
  found_ = nullptr;
  looks_ = false;
  if (!MayRepeat(batch)) return {};
  looks_ = new_ < kPatience || came_ % kEvery == 0;
  for (Entry& entry : entries_) {
    const bool counts = entry.state == State::kProgram || (looks_ && entry.state != State::kNone);
    if (!counts || !Same(entry, batch)) continue;
    entry.last_came = came_;
    found_ = &entry;
    new_ = 0;
    return entry.program;
  }
  return {};
}

std::optional<BatchToRegister> RepeatedBatches::Learn(const BatchView& batch, uint32_t* released) {
  *released = 0;
  if (!looks_) return std::nullopt;
  if (found_ == nullptr) {
    new_ = std::min(new_ + 1, kPatience);
    Remember(batch);
    return std::nullopt;
  }
  Entry& entry = *found_;
  if (entry.state != State::kCounted || ++entry.times < kTimes || !MakeRoom(released))
    return std::nullopt;
  BatchToRegister wanted{.batch = entry.number, .ops = entry.ops};
  entry.state = State::kAsked;
  return wanted;
}

// In place of the batch that did not come for longest. Programs stay: who releases them is told
// when another is to take their place.
void RepeatedBatches::Remember(const BatchView& batch) {
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.state == State::kProgram || entry.state == State::kAsked) continue;
    if (oldest == nullptr || entry.last_came < oldest->last_came) oldest = &entry;
  }
  oldest->state = State::kNone;  // while it is neither the one nor the other
  oldest->ops.clear();
  for (uint32_t i = 0; i < batch.count; ++i) {
    concert_descriptor& op = oldest->ops.emplace_back();
    op.kind = batch[i].kind;
    op.body = batch[i].body;
  }
  oldest->queue = batch[0].queue;
  oldest->times = 1;
  oldest->number = ++numbers_;
  oldest->last_came = came_;
  oldest->program = {};
  oldest->state = State::kCounted;
}

// For one more program.
bool RepeatedBatches::MakeRoom(uint32_t* released) {
  size_t programs = 0;
  Entry* idle = nullptr;
  for (Entry& entry : entries_) {
    if (entry.state != State::kProgram && entry.state != State::kAsked) continue;
    ++programs;
    if (entry.state == State::kAsked || came_ - entry.last_came < kIdleAfter) continue;
    if (idle == nullptr || entry.last_came < idle->last_came) idle = &entry;
  }
  if (programs < kPrograms) return true;
  if (idle == nullptr) return false;
  *released = std::exchange(idle->program, {}).handle;
  idle->state = State::kNone;
  idle->last_came = 0;
  return true;
}

bool RepeatedBatches::IsAsked(const Entry& entry, uint64_t batch) {
  return entry.state == State::kAsked && entry.number == batch;
}

bool RepeatedBatches::Wants(uint64_t batch) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return IsAsked(entry, batch); });
}

bool RepeatedBatches::Registered(uint64_t batch, const Program& program) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& one) { return IsAsked(one, batch); });
  if (entry == entries_.end()) return false;
  entry->program = program;
  entry->state = program.handle != 0 ? State::kProgram : State::kRefused;
  return true;
}

void RepeatedBatches::Postponed(uint64_t batch) {
  for (Entry& entry : entries_) {
    if (IsAsked(entry, batch)) entry.state = State::kCounted;
  }
}

// Any word of a body may be a buffer's handle. One that is not but looks like it costs a program
// that is made anew.
bool RepeatedBatches::Names(const Entry& entry, uint32_t buffer) {
  return std::any_of(entry.ops.begin(), entry.ops.end(), [&](const concert_descriptor& op) {
    uint32_t words[sizeof(op.body) / sizeof(uint32_t)];
    std::memcpy(words, &op.body, sizeof(op.body));
    return std::find(std::begin(words), std::end(words), buffer) != std::end(words);
  });
}

template <typename Which>
RepeatedBatches::Released RepeatedBatches::Forget(Which which) {
  Released released;
  for (Entry& entry : entries_) {
    if (entry.state == State::kNone || !which(entry)) continue;
    if (entry.state == State::kProgram) released.programs[released.count++] = entry.program.handle;
    entry = {};
  }
  found_ = nullptr;
  return released;
}

RepeatedBatches::Released RepeatedBatches::ForgetBuffer(uint32_t buffer) {
  return Forget([buffer](const Entry& entry) { return Names(entry, buffer); });
}

RepeatedBatches::Released RepeatedBatches::ForgetQueue(uint32_t queue) {
  return Forget([queue](const Entry& entry) { return entry.queue == queue; });
}

RepeatedBatches::Released RepeatedBatches::ForgetAll() {
  return Forget([](const Entry&) { return true; });
}

}  // namespace concert::client
