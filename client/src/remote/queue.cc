#include "client/src/remote/queue.h"

#include <time.h>

#include <algorithm>
#include <cstdint>

#include "client/src/clock.h"
#include "client/src/failure.h"
#include "proto/ring/control_abi.h"

namespace concert::client {
namespace {

// A nap while the ring is full: several ops' run time, so that the dispatcher is not disturbed.
constexpr timespec kFullNap{0, 20'000};

}  // namespace

RemoteCommunicator::~RemoteCommunicator() {
  session_->HandOver();
  ControlSocket& control = session_->control();
  control.Release(CONCERT_CONTROL_LEAVE_COMMUNICATOR, id_, control.NextDeadline());
}

RemoteQueue::~RemoteQueue() {
  ring_->Flush();
  ControlSocket& control = session_->control();
  const Deadline deadline = control.NextDeadline();
  session_->batch_programs().ForgetQueue(index_, deadline);
  control.Release(CONCERT_CONTROL_DESTROY_QUEUE, index_, deadline);
}

int RemoteQueue::Enter(EncodedOp& op, uint64_t** collective_sequence, concert_error* error) {
  auto* communicator = static_cast<RemoteCommunicator*>(op.communicator);
  if (communicator->gpu() != ring_->gpu()) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "the communicator was joined with GPU %u, but the queue is on GPU %u",
                communicator->gpu(), ring_->gpu());
  }
  op.descriptor.body.collective.communicator = communicator->id();
  *collective_sequence = communicator->next_sequence();
  return CONCERT_OK;
}

int RemoteQueue::Submit(EncodedOp& op, const concert_submit_options& options,
                        concert_ticket* ticket, concert_error* error) {
  if (int code = session_->Require(op.features, op.needs, error)) return code;
  uint64_t* collective_sequence = nullptr;
  if (op.communicator != nullptr) {
    if (int code = Enter(op, &collective_sequence, error)) return code;
  }
  if (int code = session_->CheckOpen(/*thorough=*/false, error)) return code;
  concert_descriptor& descriptor = op.descriptor;
  descriptor.ticket = ticket_ + 1;
  descriptor.queue = index_;
  descriptor.deadline_ns = options.deadline_ns;
  for (uint32_t i = 0; i < options.wait_count; ++i) {
    const concert_ticket& wait = options.waits[i];
    if (wait.timeline == 0) continue;
    descriptor.waits[descriptor.wait_count++] = {wait.timeline, wait.value};
  }
  const Ring::Pushed pushed = ring_->Push(&descriptor, collective_sequence);
  if (pushed != Ring::Pushed::kYes) [[unlikely]] {
    if (int code = PushWhenThereIsRoom(&descriptor, collective_sequence, error)) return code;
  }
  ++ticket_;
  *ticket = last();
  return CONCERT_OK;
}

int RemoteQueue::PushWhenThereIsRoom(concert_descriptor* descriptor, uint64_t* collective_sequence,
                                     concert_error* error) {
  const int64_t timeout_ns = std::max<int64_t>(session_->submit_timeout_ns(), 0);
  const Deadline deadline(timeout_ns);
  for (;;) {
    // The daemon also stops taking descriptors when it has no room for completions.
    ring_->Drain();
    if (int code = session_->CheckOpen(/*thorough=*/true, error)) return code;
    switch (ring_->Push(descriptor, collective_sequence)) {
      case Ring::Pushed::kYes:
        return CONCERT_OK;
      case Ring::Pushed::kBroken:
        return Fail(error, CONCERT_INTERNAL, "the daemon's end of the ring of GPU %u is broken",
                    ring_->gpu());
      case Ring::Pushed::kFull:
        break;
    }
    if (deadline.passed()) {
      return Fail(error, CONCERT_RESOURCE_EXHAUSTED,
                  "the ring of GPU %u was full (%u ops) for %lld ms; wait for earlier ops",
                  ring_->gpu(), ring_->capacity(), static_cast<long long>(timeout_ns / 1'000'000));
    }
    nanosleep(&kFullNap, nullptr);
  }
}

}  // namespace concert::client
