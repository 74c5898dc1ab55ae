#include "daemon/sched/session_port.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace concert::daemon {
namespace {

constexpr size_t kLine = 64;  // bytes of a cache line
static_assert(sizeof(concert_descriptor) % kLine == 0);

kernels::Failure BrokenRing(const concert_ring_layout& ring, concert_message message, uint64_t a1,
                            uint64_t a2) {
  return {CONCERT_ABI_INVALID_ARGUMENT, message, {ring.gpu, a1, a2, ring.capacity}};
}

}  // namespace

SessionPort::SessionPort(const SessionLink& link)
    : ops(link.account, Resource::kOps), waits(link.account, Resource::kWaits), link_(link) {
  if (has_ring()) {
    tail_word_ = &link_.memory->submit_control(static_cast<uint32_t>(link_.ring)).tail;
  }
  watched.resize(link.memory->layout().max_queues + link.memory->layout().max_user_timelines,
                 kNone);
  queues.resize(link.memory->layout().max_queues);
  buffers.resize(1);  // handle 0 is "none"
  buffer_uses.resize(1);
  buffer_releasing.resize(1);
}

SessionPort::Member* SessionPort::FindMember(uint32_t handle) {
  for (Member& member : members) {
    if (member.membership.handle == handle) return &member;
  }
  return nullptr;
}

bool SessionPort::ReadTail(kernels::Failure& broken_why) {
  const uint32_t ring = static_cast<uint32_t>(link_.ring);
  // Acquire: pairs with the client's release of the tail after writing descriptors.
  const uint64_t tail = LoadAcquire(*tail_word_);
  const concert_ring_layout& layout = link_.memory->layout().rings[ring];
  if (tail < tail_ || tail - head_ > layout.capacity) {
    broken_why = BrokenRing(layout, CONCERT_MESSAGE_RING_PROTOCOL, tail, head_);
    return false;
  }
  tail_ = tail;
  return true;
}

uint32_t SessionPort::Available(kernels::Failure& broken_why) {
  const uint64_t published = tail_ - head_;
  if (published == 0) return 0;
  const uint32_t ring = static_cast<uint32_t>(link_.ring);
  const concert_ring_layout& layout = link_.memory->layout().rings[ring];
  // Every admitted op has a completion slot in reserve, so that no failure is ever lost.
  if (completion_tail_ - completion_head_ + unfinished + published > layout.completion_capacity) {
    // Acquire: pairs with the client's release after it has read the entries.
    const uint64_t head = LoadAcquire(link_.memory->submit_control(ring).completion_head);
    if (head < completion_head_ || head > completion_tail_) {
      broken_why = BrokenRing(layout, CONCERT_MESSAGE_RING_PROTOCOL, head, completion_tail_);
      return 0;
    }
    completion_head_ = head;
  }
  // One whose failure is published before it is released counts twice until then.
  const uint64_t reserved = completion_tail_ - completion_head_ + unfinished;
  if (reserved >= layout.completion_capacity) return 0;
  const uint64_t spare = layout.completion_capacity - reserved;
  return static_cast<uint32_t>(published < spare ? published : spare);
}

bool SessionPort::Read(concert_descriptor& descriptor, kernels::Failure& broken_why) {
  const uint32_t ring = static_cast<uint32_t>(link_.ring);
  const concert_ring_layout& layout = link_.memory->layout().rings[ring];
  const auto slot = [&](uint64_t position) {
    return reinterpret_cast<const char*>(
        &link_.memory->descriptors(ring)[position & (layout.capacity - 1)]);
  };
  // The client's core has written the lines: while this descriptor is looked at, those of the next
  // come over.
  if (head_ + 1 < tail_) {
    const char* next = slot(head_ + 1);
    for (size_t line = 0; line < sizeof(descriptor); line += kLine) __builtin_prefetch(next + line);
  }
  // Line by line: as a whole, gcc copies it with a `rep movs` that takes four times as long.
  const char* source = slot(head_);
  for (size_t line = 0; line < sizeof(descriptor); line += kLine) {
    std::memcpy(reinterpret_cast<char*>(&descriptor) + line, source + line, kLine);
  }
  // The compiler must not read the shared slot again in place of the copy.
  asm volatile("" ::: "memory");
  if (descriptor.sequence != head_ + 1) {
    broken_why = BrokenRing(layout, CONCERT_MESSAGE_RING_SEQUENCE, head_, descriptor.sequence);
    return false;
  }
  ++head_;
  return true;
}

void SessionPort::PublishHead() {
  if (published_head_ == head_) return;
  published_head_ = head_;
  // Release: pairs with the client's acquire before it reuses the slots.
  StoreRelease(link_.memory->ring_state(static_cast<uint32_t>(link_.ring)).head, head_);
}

void SessionPort::SetSleeping(bool sleeping) {
  if (sleeping_ == sleeping) return;
  sleeping_ = sleeping;
  concert_ring_state& state = link_.memory->ring_state(static_cast<uint32_t>(link_.ring));
  std::atomic_ref<uint32_t>(state.sleeping).store(sleeping ? 1 : 0, std::memory_order_relaxed);
}

void SessionPort::SetCompany(uint32_t company) {
  if (company_ == company) return;
  company_ = company;
  concert_ring_state& state = link_.memory->ring_state(static_cast<uint32_t>(link_.ring));
  // Relaxed: a hint, with which nothing else is published.
  std::atomic_ref<uint32_t>(state.company).store(company, std::memory_order_relaxed);
}

void SessionPort::PublishCompletion(const kernels::Op& op, const kernels::Failure& failure) {
  const uint32_t ring = static_cast<uint32_t>(link_.ring);
  const concert_ring_layout& layout = link_.memory->layout().rings[ring];
  concert_completion& entry =
      link_.memory->completions(ring)[completion_tail_ & (layout.completion_capacity - 1)];
  entry.sequence = completion_tail_ + 1;
  entry.ticket = op.ticket;
  entry.queue = static_cast<uint16_t>(op.queue);
  entry.covered = static_cast<uint16_t>(op.covered);
  entry.status = static_cast<uint16_t>(failure.status);
  entry.message = static_cast<uint16_t>(failure.message);
  for (size_t i = 0; i < failure.args.size(); ++i) entry.args[i] = failure.args[i];
  ++completion_tail_;
  // Release: pairs with the client's acquire before it reads entries.
  StoreRelease(link_.memory->ring_state(ring).completion_tail, completion_tail_);
}

void SessionPort::AdvanceTimeline(uint32_t queue, uint64_t ticket) {
  std::atomic_ref<uint64_t> word(link_.memory->timeline(queue));
  uint64_t value = word.load(std::memory_order_relaxed);
  // Release: whoever sees the ticket sees the completion entry that explains it.
  while (value < ticket && !word.compare_exchange_weak(value, ticket, std::memory_order_release)) {
  }
}

void SessionPort::FenceBeforeWake() {
  // Full fence: pairs with the client's between adding to `waiters` and reading the timeline.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

uint32_t SessionPort::Sleepers(uint32_t queue) const {
  return LoadRelaxed(link_.memory->waiters(queue));
}

uint32_t SessionPort::Wake(uint32_t queue, uint32_t most) {
  // Little-endian: the futex word is the low half of the timeline.
  const long woken =
      syscall(SYS_futex, &link_.memory->timeline(queue), FUTEX_WAKE, most, nullptr, nullptr, 0);
  return woken > 0 ? static_cast<uint32_t>(woken) : 0;
}

}  // namespace concert::daemon
