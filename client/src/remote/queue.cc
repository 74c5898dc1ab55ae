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

concert_operand Operand(const concert_slice& slice) {
  return {slice.buffer == nullptr ? 0 : slice.buffer->id, 0, slice.offset};
}

uint64_t OrTight(uint64_t stride, uint64_t tight) { return stride != 0 ? stride : tight; }

// concert.h: 0 is "without gaps", CONCERT_STRIDE_SHARED is the ABI's 0. One matrix has no stride.
uint64_t BatchStride(uint64_t stride, uint32_t batch, uint64_t rows, uint64_t ld) {
  if (stride == CONCERT_STRIDE_SHARED || batch <= 1) return 0;
  return OrTight(stride, rows * ld);
}

// Fields that are wider in concert.h than in the descriptor. A value that would be cut becomes the
// descriptor's highest, which no enum reaches, so that the daemon refuses it.
uint8_t Narrow8(uint32_t value) {
  return value > UINT8_MAX ? UINT8_MAX : static_cast<uint8_t>(value);
}
uint16_t Narrow16(uint32_t value) {
  return value > UINT16_MAX ? UINT16_MAX : static_cast<uint16_t>(value);
}

concert_gemm_body Encode(const concert_gemm& op) {
  concert_gemm_body body{};
  body.m = op.m;
  body.n = op.n;
  body.k = op.k;
  body.batch = op.batch == 0 ? 1 : op.batch;
  body.a = Operand(op.a);
  body.w = Operand(op.w);
  body.c = Operand(op.c);
  body.d = Operand(op.d);
  body.bias = Operand(op.bias);
  body.lda = OrTight(op.lda, op.k);
  body.ldw = OrTight(op.ldw, op.k);
  body.ldc = OrTight(op.ldc, op.n);
  body.ldd = OrTight(op.ldd, op.n);
  body.stride_a = BatchStride(op.stride_a, op.batch, op.m, body.lda);
  body.stride_w = BatchStride(op.stride_w, op.batch, op.n, body.ldw);
  body.stride_c = BatchStride(op.stride_c, op.batch, op.m, body.ldc);
  body.stride_d = BatchStride(op.stride_d, op.batch, op.m, body.ldd);
  body.alpha = op.alpha;
  body.beta = op.beta;
  body.dtype = Narrow8(op.dtype);
  body.activation = Narrow8(op.activation);
  body.flags = Narrow16(op.flags);
  body.d_dtype = Narrow8(op.d_dtype);
  const concert_operand a_scales = Operand(op.a_scales), w_scales = Operand(op.w_scales);
  body.a.scales = a_scales.buffer;
  body.w.scales = w_scales.buffer;
  body.a_scales_offset = a_scales.offset;
  body.w_scales_offset = w_scales.offset;
  return body;
}

}  // namespace

RemoteCommunicator::~RemoteCommunicator() {
  concert_leave_communicator request{};
  request.communicator = id_;
  concert_control_reply reply;
  session_->control().Call(CONCERT_CONTROL_LEAVE_COMMUNICATOR, &request, &reply, -1, nullptr,
                           nullptr);
}

RemoteQueue::~RemoteQueue() {
  ring_->Flush();
  concert_destroy_queue request{};
  request.queue = index_;
  concert_control_reply reply;
  session_->control().Call(CONCERT_CONTROL_DESTROY_QUEUE, &request, &reply, -1, nullptr, nullptr);
}

int RemoteQueue::Submit(const concert_gemm& op, const concert_submit_options& options,
                        concert_ticket* ticket, concert_error* error) {
  if (op.dtype == CONCERT_FP8_E4M3 && !session_->Has(CONCERT_FEATURE_FP8)) {
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "dtype is fp8_e4m3, which this daemon does not know; update concertd");
  }
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_GEMM;
  descriptor.body.gemm = Encode(op);
  return Push(&descriptor, options, nullptr, ticket, error);
}

int RemoteQueue::Submit(const concert_copy& op, const concert_submit_options& options,
                        concert_ticket* ticket, concert_error* error) {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_COPY;
  descriptor.body.copy.src = Operand(op.src);
  descriptor.body.copy.dst = Operand(op.dst);
  descriptor.body.copy.bytes = op.bytes;
  return Push(&descriptor, options, nullptr, ticket, error);
}

int RemoteQueue::Submit(const concert_collective& op, const concert_submit_options& options,
                        concert_ticket* ticket, concert_error* error) {
  if (op.communicator == nullptr) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "communicator is NULL");
  }
  if (op.kind < CONCERT_ALL_REDUCE || op.kind > CONCERT_BARRIER) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "kind is %u; a collective is between %d and %d",
                op.kind, CONCERT_ALL_REDUCE, CONCERT_BARRIER);
  }
  auto* communicator = static_cast<RemoteCommunicator*>(op.communicator);
  if (communicator->gpu() != ring_->gpu()) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "the communicator was joined with GPU %u, but the queue is on GPU %u",
                communicator->gpu(), ring_->gpu());
  }
  concert_descriptor descriptor{};
  descriptor.kind = static_cast<uint16_t>(op.kind);
  concert_collective_body& body = descriptor.body.collective;
  body = {};
  body.communicator = communicator->id();
  body.root = op.root;
  body.count = op.count;
  body.src = Operand(op.src);
  body.dst = Operand(op.dst);
  body.dtype = Narrow8(op.dtype);
  body.reduction = Narrow8(op.reduction);
  return Push(&descriptor, options, communicator->next_sequence(), ticket, error);
}

int RemoteQueue::Push(concert_descriptor* descriptor, const concert_submit_options& options,
                      uint64_t* collective_sequence, concert_ticket* ticket, concert_error* error) {
  if (int code = session_->CheckOpen(/*thorough=*/false, error)) return code;
  descriptor->ticket = ticket_ + 1;
  descriptor->queue = index_;
  descriptor->deadline_ns = options.deadline_ns;
  for (uint32_t i = 0; i < options.wait_count; ++i) {
    const concert_ticket& wait = options.waits[i];
    if (wait.timeline == 0) continue;
    descriptor->waits[descriptor->wait_count++] = {wait.timeline, wait.value};
  }
  const Ring::Pushed pushed = ring_->Push(descriptor, collective_sequence);
  if (pushed != Ring::Pushed::kYes) [[unlikely]] {
    if (int code = PushWhenThereIsRoom(descriptor, collective_sequence, error)) return code;
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
