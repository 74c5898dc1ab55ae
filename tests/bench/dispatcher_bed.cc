#include "tests/bench/dispatcher_bed.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "daemon/check.h"
#include "kernels/group/plan/compiler.h"

namespace concert::bench {
namespace {

using daemon::Address;
using daemon::DispatcherMessage;

constexpr uint32_t kBuffer = 1;
constexpr uint64_t kOperandBytes = 4 * DispatcherBed::kMatrixBytes;  // A, W, D and room
constexpr uint64_t kBufferBytes =
    DispatcherBed::kMaxSets * DispatcherBed::kMaxGemms * kOperandBytes;

}  // namespace

DispatcherBed::DispatcherBed(daemon::Device& gpu, const std::string& policy,
                             const daemon::DispatcherOptions& options, uint32_t queues,
                             const daemon::Limits& limits)
    : accounts_(limits),
      control_(1 << 10),
      issuer_(1 << 15),
      records_(0),
      policy_(policies::FindPolicy(policy)
                  ->make({gpu.info().model, nullptr, kernels::MakeGroupCompiler})
                  .release()),
      dispatcher_(options, gpu, std::unique_ptr<policies::Policy>(policy_), control_, issuer_,
                  records_) {
  OpenSession(/*uid=*/1, queues);
}

DispatcherBed::~DispatcherBed() {
  for (const Client& client : clients_) {
    munmap(client.region, client.bytes);
    close(client.event_fd);
  }
}

uint32_t DispatcherBed::OpenSession(uint32_t uid, uint32_t queues, policies::Priority priority) {
  const auto session = static_cast<uint32_t>(clients_.size());
  const uint32_t id = IdOf(session);
  Client& client = clients_.emplace_back();
  client.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  client.tickets.resize(queues);
  const std::vector<int> gpus = {0};
  client.memory = daemon::SessionMemory::Create({.session = id, .gpus = gpus}).value();
  client.bytes = client.memory->layout().client_bytes;
  client.region = static_cast<char*>(mmap(nullptr, client.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                          client.memory->client_fd(), 0));
  CONCERT_CHECK(client.region != MAP_FAILED);
  client.memory->CloseFds();
  DispatcherMessage link(DispatcherMessage::Type::kAddSession, id);
  link.link = {.session = id,
               .uid = uid,
               .account = &accounts_.Of(uid),
               .ring = 0,
               .event_fd = client.event_fd,
               .timelines_address = reinterpret_cast<Address>(client.memory->timelines()),
               .memory = client.memory.get()};
  Tell(link);
  for (uint32_t i = 0; i < queues; ++i) {
    DispatcherMessage queue(DispatcherMessage::Type::kAddQueue, id);
    queue.queue = {.queue = i, .priority = priority, .next_ticket = 1};
    Tell(queue);
  }
  DispatcherMessage buffer(DispatcherMessage::Type::kAddBuffer, id);
  buffer.buffer = {.handle = kBuffer,
                   .range = {.address = (1 << 20) + session * kBufferBytes,
                             .bytes = kBufferBytes,
                             .gpu = dispatcher_.gpu(),
                             .pool = true}};
  Tell(buffer);
  return session;
}

void DispatcherBed::CloseSession(uint32_t session) {
  Tell(DispatcherMessage(DispatcherMessage::Type::kRemoveSession, IdOf(session)));
}

void DispatcherBed::Tell(const DispatcherMessage& message) {
  CONCERT_CHECK(dispatcher_.mailbox().TryPush(message));
  dispatcher_.Turn(0);
}

void DispatcherBed::Write(uint32_t session, concert_descriptor op) {
  Client& client = clients_[session];
  const concert_ring_layout& ring = client.memory->layout().rings[0];
  auto* slots = reinterpret_cast<concert_descriptor*>(client.region + ring.descriptors_offset);
  concert_descriptor& slot = slots[client.tail & (ring.capacity - 1)];
  op.sequence = ++client.tail;
  op.ticket = ++client.tickets[op.queue];
  slot = op;
  ++submitted_;
}

void DispatcherBed::Ring(uint32_t session) {
  auto* control = reinterpret_cast<concert_submit_control*>(clients_[session].region);
  std::atomic_ref<uint64_t>(control->tail).store(clients_[session].tail, std::memory_order_release);
}

uint64_t& DispatcherBed::user_timeline(uint32_t session, uint32_t index) {
  const uint64_t offset = clients_[session].memory->layout().user_timelines_offset;
  return reinterpret_cast<concert_timeline*>(clients_[session].region + offset)[index].value;
}

uint32_t& DispatcherBed::waiters(uint32_t session, uint32_t queue) {
  const uint64_t offset = clients_[session].memory->layout().waiters_offset;
  return reinterpret_cast<uint32_t*>(clients_[session].region + offset)[queue];
}

std::vector<concert_completion> DispatcherBed::TakeFailures(uint32_t session) {
  Client& client = clients_[session];
  const concert_ring_layout& ring = client.memory->layout().rings[0];
  std::vector<concert_completion> failures;
  for (; client.failures < client.memory->ring_state(0).completion_tail; ++client.failures) {
    failures.push_back(
        client.memory->completions(0)[client.failures & (ring.completion_capacity - 1)]);
  }
  auto* control = reinterpret_cast<concert_submit_control*>(client.region);
  std::atomic_ref<uint64_t>(control->completion_head)
      .store(client.failures, std::memory_order_release);
  return failures;
}

bool DispatcherBed::Fits(std::span<const GemmShape> shapes) {
  return shapes.size() <= kMaxGemms &&
         std::all_of(shapes.begin(), shapes.end(),
                     [](const GemmShape& shape) { return shape.bytes() <= kMatrixBytes; });
}

concert_operand DispatcherBed::Operand(uint64_t place, int matrix) {
  return {kBuffer, 0, place * kOperandBytes + static_cast<uint64_t>(matrix) * kMatrixBytes};
}

concert_descriptor DispatcherBed::Gemm(const GemmShape& shape, uint32_t queue, uint64_t place) {
  concert_descriptor op{};
  op.queue = queue;
  op.kind = CONCERT_OP_GEMM;
  op.body.gemm = {.m = shape.m,
                  .n = shape.n,
                  .k = shape.k,
                  .batch = 1,
                  .a = Operand(place, 0),
                  .w = Operand(place, 1),
                  .d = Operand(place, 2),
                  .lda = shape.k,
                  .ldw = shape.k,
                  .ldd = shape.n,
                  .alpha = 1,
                  .dtype = static_cast<uint8_t>(shape.dtype),
                  .d_dtype = static_cast<uint8_t>(shape.d_dtype())};
  return op;
}

void DispatcherBed::Submit(std::span<const GemmShape> shapes, uint32_t first_queue, uint64_t set) {
  CONCERT_CHECK(Fits(shapes) && set < kMaxSets);
  for (uint32_t i = 0; i < shapes.size(); ++i) {
    Write(0, Gemm(shapes[i], first_queue + i, set * kMaxGemms + i));
  }
  Ring(0);
}

void DispatcherBed::DrainRecords() {
  records_.Drain([](const auto&) {});
}

}  // namespace concert::bench
