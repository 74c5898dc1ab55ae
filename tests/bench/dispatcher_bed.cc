#include "tests/bench/dispatcher_bed.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "daemon/check.h"

namespace concert::bench {
namespace {

using daemon::Address;
using daemon::DispatcherMessage;

constexpr uint32_t kSession = 1, kBuffer = 1;
constexpr uint64_t kOperandBytes = 4 * DispatcherBed::kMatrixBytes;  // A, W, D and room
constexpr uint64_t kBufferBytes =
    DispatcherBed::kMaxSets * DispatcherBed::kMaxGemms * kOperandBytes;

}  // namespace

DispatcherBed::DispatcherBed(daemon::Device& gpu, const std::string& policy,
                             const daemon::DispatcherOptions& options, uint32_t queues)
    : event_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      tickets_(queues),
      control_(1 << 10),
      issuer_(1 << 14),
      records_(0),
      policy_(policies::FindPolicy(policy)->make({gpu.info().model, nullptr}).release()),
      dispatcher_(options, gpu, std::unique_ptr<policies::Policy>(policy_), control_, issuer_,
                  records_) {
  const std::vector<int> gpus = {0};
  memory_ = daemon::SessionMemory::Create({.session = kSession, .gpus = gpus}).value();
  client_bytes_ = memory_->layout().client_bytes;
  client_ = static_cast<char*>(
      mmap(nullptr, client_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_->client_fd(), 0));
  CONCERT_CHECK(client_ != MAP_FAILED);
  DispatcherMessage session(DispatcherMessage::Type::kAddSession, kSession);
  session.link = {.session = kSession,
                  .ring = 0,
                  .event_fd = event_fd_,
                  .timelines_address = reinterpret_cast<Address>(memory_->timelines()),
                  .memory = memory_.get()};
  Tell(session);
  for (uint32_t i = 0; i < queues; ++i) {
    DispatcherMessage queue(DispatcherMessage::Type::kAddQueue, kSession);
    queue.queue = {.queue = i, .priority = policies::Priority::kNormal, .next_ticket = 1};
    Tell(queue);
  }
  DispatcherMessage buffer(DispatcherMessage::Type::kAddBuffer, kSession);
  buffer.buffer = {.handle = kBuffer, .range = {1 << 20, kBufferBytes, 0, false}};
  Tell(buffer);
}

DispatcherBed::~DispatcherBed() {
  munmap(client_, client_bytes_);
  close(event_fd_);
}

void DispatcherBed::Tell(const DispatcherMessage& message) {
  CONCERT_CHECK(dispatcher_.mailbox().TryPush(message));
  dispatcher_.Turn(0);
}

bool DispatcherBed::Takes(std::span<const GemmShape> shapes) {
  return shapes.size() <= kMaxGemms &&
         std::all_of(shapes.begin(), shapes.end(),
                     [](const GemmShape& shape) { return shape.bytes() <= kMatrixBytes; });
}

void DispatcherBed::Submit(std::span<const GemmShape> shapes, uint32_t first_queue, uint64_t set) {
  CONCERT_CHECK(Takes(shapes) && set < kMaxSets);
  const concert_ring_layout& ring = memory_->layout().rings[0];
  auto* slots = reinterpret_cast<concert_descriptor*>(client_ + ring.descriptors_offset);
  for (uint32_t i = 0; i < shapes.size(); ++i) {
    const GemmShape& shape = shapes[i];
    const uint64_t place = (set * kMaxGemms + i) * kOperandBytes;
    concert_descriptor& op = slots[tail_ & (ring.capacity - 1)];
    op = {};
    op.sequence = ++tail_;
    op.queue = first_queue + i;
    op.ticket = ++tickets_[op.queue];
    op.kind = CONCERT_OP_GEMM;
    op.body.gemm = {.m = shape.m,
                    .n = shape.n,
                    .k = shape.k,
                    .batch = 1,
                    .a = {kBuffer, 0, place},
                    .w = {kBuffer, 0, place + kMatrixBytes},
                    .d = {kBuffer, 0, place + 2 * kMatrixBytes},
                    .lda = shape.k,
                    .ldw = shape.k,
                    .ldd = shape.n,
                    .alpha = 1,
                    .dtype = static_cast<uint8_t>(shape.dtype),
                    .d_dtype = static_cast<uint8_t>(shape.d_dtype())};
  }
  auto* control = reinterpret_cast<concert_submit_control*>(client_);
  std::atomic_ref<uint64_t>(control->tail).store(tail_, std::memory_order_release);
}

void DispatcherBed::DrainRecords() {
  records_.Drain([](const auto&) {});
}

}  // namespace concert::bench
