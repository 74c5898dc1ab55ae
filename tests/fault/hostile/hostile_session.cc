#include "tests/fault/hostile/hostile_session.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace concert::test {
namespace {

// Requests under way at once: who leaves more replies unread loses its session.
constexpr int kInFlight = 8;

// Sends `count` requests, the i-th made by `make(i)`, and gives those that were granted, with what
// they were granted, to `take(i, reply)`. Ends with the requests that were under way when the first
// was not: of these later ones may have been, since others give back meanwhile.
template <typename Reply, typename Make, typename Take>
void CallMany(RawClient& client, int count, const Make& make, const Take& take) {
  for (int done = 0; done < count;) {
    const int batch = std::min(kInFlight, count - done);
    for (int i = 0; i < batch; ++i) {
      if (!client.Send(make(done + i))) return;
    }
    bool ok = true;
    for (int i = 0; i < batch; ++i) {
      const std::vector<char> packet = client.Receive();
      if (packet.size() != sizeof(Reply)) return;
      const auto& reply = *reinterpret_cast<const Reply*>(packet.data());
      ok = ok && reply.reply.status == CONCERT_ABI_OK;
      if (reply.reply.status == CONCERT_ABI_OK) take(done + i, reply);
    }
    if (!ok) return;
    done += batch;
  }
}

}  // namespace

std::unique_ptr<HostileSession> HostileSession::Open(const std::string& socket, int queues) {
  std::unique_ptr<HostileSession> session(new HostileSession(socket));
  if (!session->client_.connected() || !session->client_.Hello()) return nullptr;
  CallMany<concert_create_queue_reply>(
      session->client_, queues,
      [](int) { return RawClient::Make<concert_create_queue>(CONCERT_CONTROL_CREATE_QUEUE); },
      [&](int, const concert_create_queue_reply& reply) {
        session->queues_.push_back({reply.queue, reply.ticket});
      });
  return session;
}

std::vector<uint32_t> HostileSession::JoinAlone(int count, uint32_t ranks) {
  std::vector<uint32_t> handles;
  CallMany<concert_join_communicator_reply>(
      client_, count,
      [&](int i) {
        auto join = RawClient::Make<concert_join_communicator>(CONCERT_CONTROL_JOIN_COMMUNICATOR);
        join.ranks = ranks;
        const std::string name = "alone " + std::to_string(id()) + " " + std::to_string(i);
        name.copy(join.name, sizeof(join.name));
        return join;
      },
      [&](int, const concert_join_communicator_reply& reply) {
        handles.push_back(reply.communicator);
      });
  return handles;
}

std::vector<uint32_t> HostileSession::Allocate(int count, uint64_t bytes) {
  std::vector<uint32_t> handles;
  CallMany<concert_buffer_reply>(
      client_, count,
      [&](int) {
        auto allocate = RawClient::Make<concert_allocate_buffer>(CONCERT_CONTROL_ALLOCATE_BUFFER);
        allocate.bytes = bytes;
        return allocate;
      },
      [&](int, const concert_buffer_reply& reply) { handles.push_back(reply.buffer); });
  return handles;
}

std::vector<uint32_t> HostileSession::Seal(const std::vector<uint32_t>& buffers) {
  std::vector<uint32_t> handles(buffers.size(), 0);
  CallMany<concert_buffer_reply>(
      client_, static_cast<int>(buffers.size()), [&](int i) { return MakeSeal(buffers[i]); },
      [&](int i, const concert_buffer_reply& reply) { handles[i] = reply.buffer; });
  return handles;
}

void HostileSession::Release(const std::vector<uint32_t>& buffers) {
  for (const uint32_t buffer : buffers) client_.ReleaseBuffer(buffer);
}

uint64_t HostileSession::Room() const {
  return client_.capacity() - (client_.tail() + staged_ - client_.head());
}

void HostileSession::Stage(int queue, concert_descriptor descriptor) {
  Queue& to = queues_[queue];
  const uint64_t position = client_.tail() + staged_++;
  descriptor.queue = to.index;
  descriptor.ticket = ++to.ticket;
  descriptor.sequence = position + 1;
  client_.slot(position) = descriptor;
}

void HostileSession::Publish() {
  client_.SetCompletionHead(client_.completion_tail());
  if (staged_ > 0) client_.SetTail(client_.tail() + staged_);
  staged_ = 0;
}

uint64_t HostileSession::Unfinished(int queue) const {
  return queues_[queue].ticket - client_.timeline(queues_[queue].index);
}

bool HostileSession::Closed() const {
  return std::atomic_ref(const_cast<uint32_t&>(client_.page().state)).load() ==
         CONCERT_SESSION_CLOSED;
}

HostileSessions OpenSessions(const Orders& orders, int queues) {
  HostileSessions sessions;
  while (static_cast<int>(sessions.size()) < orders.count && !orders.Over()) {
    std::unique_ptr<HostileSession> session = HostileSession::Open(orders.socket, queues);
    if (session == nullptr || session->queue_count() == 0) break;
    sessions.push_back(std::move(session));
  }
  return sessions;
}

concert_seal_buffer MakeSeal(uint32_t buffer) {
  auto seal = RawClient::Make<concert_seal_buffer>(CONCERT_CONTROL_SEAL_BUFFER);
  seal.buffer = buffer;
  return seal;
}

concert_descriptor MakeCopy(uint32_t buffer) {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_COPY;
  descriptor.body.copy.src = {buffer, 0, 0};
  descriptor.body.copy.dst = {buffer, 0, 64};
  descriptor.body.copy.bytes = 64;
  return descriptor;
}

concert_descriptor MakePart(uint32_t communicator, uint64_t sequence) {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_BARRIER;
  descriptor.body.collective.communicator = communicator;
  descriptor.body.collective.sequence = sequence;
  return descriptor;
}

}  // namespace concert::test
