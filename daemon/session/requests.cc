// The control protocol's requests after Hello: whose turn it is, and how they are answered. Those
// about queues are here; others in buffers.cc, programs.cc and memberships.cc.
#include <sys/epoll.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/quota/budget.h"
#include "daemon/session/server.h"

namespace concert::daemon {
namespace {

// What asks a device for something that takes it milliseconds, or a second.
bool MayTakeLong(uint16_t request) {
  switch (request) {
    case CONCERT_CONTROL_ALLOCATE_BUFFER:
    case CONCERT_CONTROL_IMPORT_BUFFER:
    case CONCERT_CONTROL_SEAL_BUFFER:
    case CONCERT_CONTROL_CREATE_PROGRAM:
    case CONCERT_CONTROL_JOIN_COMMUNICATOR:
      return true;
    default:
      return false;
  }
}

}  // namespace

// It is not watched until its turn has come, so that sockets of others are not behind those of
// sessions that wait.
void Server::HandleReadable(Session& session) {
  if (session.state != Session::State::kOpen) return;
  // Of a session with an errand only the client's end is watched.
  if (session.awaits_errand || session.errand != nullptr) return Close(session, {});
  request_turns_.Want(session.id, session.uid);
}

void Server::HandleRequests() {
  for (uint32_t left = PerTurn(Work::kRequests); left > 0;) {
    const std::optional<uint32_t> next = request_turns_.Next();
    if (!next.has_value()) return;
    Session& session = *sessions_.at(*next);  // Close forgets those that go
    left -= HandleRequestsOf(session, std::min(left, PerTurn(Work::kRequestsOfSession)));
  }
}

// How many there were, at least 1: one that is not there takes as long as one that is refused.
uint32_t Server::HandleRequestsOf(Session& session, uint32_t most) {
  for (uint32_t i = 0; i < most; ++i) {
    // Nothing is received that has not been looked at: it may be one that takes long.
    uint16_t type;
    const Received next = NextType(session.socket.get(), type);
    if (next == Received::kNothing) {
      WatchRequests(session, true);
    } else if (next == Received::kOver) {
      Close(session, {});
    } else if (MayTakeLong(type)) {
      AwaitErrand(session);
    } else {
      HandleNext(session);
      if (session.state == Session::State::kOpen) continue;
    }
    return i + 1;
  }
  request_turns_.Want(session.id, session.uid);
  return most;
}

void Server::HandleNext(Session& session) {
  const uint32_t id = session.id;
  Packet packet;
  const Received received = Receive(session.socket.get(), packet);
  if (received == Received::kNothing) return;
  if (received == Received::kOver) return Close(session, {});
  HandlePacket(session, packet);
  CONCERT_CHECK(sessions_.contains(id));  // sessions end in EndSessions only
}

// The request stays in the socket, so that sessions which wait hold nothing.
void Server::AwaitErrand(Session& session) {
  session.awaits_errand = true;
  errand_turns_.Want(session.id, session.uid);
  WatchRequests(session, false);
}

void Server::BeginErrands() {
  for (uint32_t i = 0; i < PerTurn(Work::kErrands) && !errands_.busy(); ++i) {
    const std::optional<uint32_t> next = errand_turns_.Next();
    if (!next.has_value()) return;
    Session& session = *sessions_.at(*next);  // Close forgets those that go
    session.awaits_errand = false;
    HandleNext(session);
    const bool refused = session.state == Session::State::kOpen && session.errand == nullptr;
    if (refused) WatchRequests(session, true);
  }
}

void Server::WatchRequests(const Session& session, bool watch) {
  epoll_event event{.events = EPOLLRDHUP | EPOLLONESHOT | (watch ? EPOLLIN : 0u),
                    .data = {.u64 = session.id}};
  CONCERT_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, session.socket.get(), &event) == 0);
}

void Server::EndErrandBytes(Session& session, const absl::Status& status,
                            concert_control_reply& reply, size_t bytes, std::span<const int> fds) {
  const std::unique_ptr<Packet> request = std::move(session.errand);
  if (session.state == Session::State::kOpen) {
    WatchRequests(session, true);
    return SendBytes(session, *request, status, reply, bytes, fds);
  }
  if (--session.releases_due == 0) Release(session);
}

void Server::HandlePacket(Session& session, Packet& packet) {
  const uint16_t type = packet.header().type;
  if (!packet.WellFormed() || type == CONCERT_CONTROL_HELLO) {
    counters_.broken.fetch_add(1, std::memory_order_relaxed);
    Close(session, {CONCERT_ABI_INVALID_ARGUMENT, CONCERT_MESSAGE_SESSION_CLOSED, {}});
    return;
  }
  if (const absl::Status status = packet.CheckReserved(); !status.ok())
    return Refuse(session, packet, status);
  switch (type) {
    case CONCERT_CONTROL_CREATE_QUEUE:
      return HandleCreateQueue(session, packet);
    case CONCERT_CONTROL_DESTROY_QUEUE:
      return HandleDestroyQueue(session, packet);
    case CONCERT_CONTROL_ALLOCATE_BUFFER:
      return HandleAllocateBuffer(session, packet);
    case CONCERT_CONTROL_IMPORT_BUFFER:
      return HandleImportBuffer(session, packet);
    case CONCERT_CONTROL_RELEASE_BUFFER:
      return HandleReleaseBuffer(session, packet);
    case CONCERT_CONTROL_SEAL_BUFFER:
      return HandleSealBuffer(session, packet);
    case CONCERT_CONTROL_JOIN_COMMUNICATOR:
      return HandleJoinCommunicator(session, packet);
    case CONCERT_CONTROL_CREATE_PROGRAM:
      return HandleCreateProgram(session, packet);
    case CONCERT_CONTROL_LEAVE_COMMUNICATOR:
      return HandleLeaveCommunicator(session, packet);
  }
}

// Before it is known what the request wants: its reply says nothing else.
void Server::Refuse(Session& session, const Packet& request, const absl::Status& status) {
  union {
    concert_control_reply head;
    concert_create_queue_reply queue;
    concert_buffer_reply buffer;
    concert_join_communicator_reply communicator;
    concert_program_reply program;
  } reply{};
  const size_t bytes = ReplySize(request.header().type);
  CONCERT_CHECK(bytes <= sizeof(reply));
  SendBytes(session, request, status, reply.head, bytes, {});
}

// Without waiting: a client that does not read its replies loses its session.
void Server::SendBytes(Session& session, const Packet& request, const absl::Status& status,
                       concert_control_reply& reply, size_t bytes, std::span<const int> fds) {
  summaries_.Update(session);
  if (!Reply(session.socket.get(), request, status, reply, bytes, fds)) Close(session, {});
}

bool Server::HasRing(const Session& session, uint32_t gpu) const {
  return std::find(session.gpus.begin(), session.gpus.end(), static_cast<int>(gpu)) !=
         session.gpus.end();
}

void Server::HandleCreateQueue(Session& session, const Packet& packet) {
  const concert_create_queue& request = packet.as<concert_create_queue>();
  concert_create_queue_reply reply{};
  const auto free = std::find_if(session.queues.begin(), session.queues.end(),
                                 [](const Session::Queue& queue) { return !queue.used; });
  absl::Status status;
  if (!HasRing(session, request.gpu)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("gpu is ", request.gpu, ", which this session has no ring on"));
  } else if (request.priority < -1 || request.priority > 1) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "priority is ", request.priority, "; it must be -1 (low), 0 (normal) or 1 (high)"));
  } else if (free == session.queues.end()) {
    status = absl::ResourceExhaustedError(absl::StrCat(
        "the session has all of its ", session.queues.size(), " queues in use; destroy some"));
  } else if (status = MayBegin(static_cast<int>(request.gpu)); !status.ok()) {
    // Refused.
  } else if (status = session.account->ChargeAll(std::array{Charge{Resource::kQueues}});
             status.ok()) {
    ++session.queue_count;
    *free = {.used = true, .removing = false, .gpu = static_cast<int>(request.gpu)};
    reply.queue = static_cast<uint32_t>(free - session.queues.begin());
    reply.ring = static_cast<uint32_t>(
        std::find(session.gpus.begin(), session.gpus.end(), free->gpu) - session.gpus.begin());
    // An index that was used before goes on counting where it stood: timelines never run backwards.
    reply.ticket = LoadAcquire(session.memory->timeline(reply.queue));
    DispatcherMessage message(DispatcherMessage::Type::kAddQueue, session.id);
    message.queue = {.queue = reply.queue,
                     .priority = static_cast<policies::Priority>(request.priority),
                     .next_ticket = reply.ticket + 1};
    Tell(free->gpu, message);
  }
  Send(session, packet, status, reply);
}

void Server::HandleDestroyQueue(Session& session, const Packet& packet) {
  const concert_destroy_queue& request = packet.as<concert_destroy_queue>();
  concert_control_reply reply{};
  absl::Status status;
  if (request.queue >= session.queues.size() || !session.queues[request.queue].used ||
      session.queues[request.queue].removing) {
    status = absl::NotFoundError(
        absl::StrCat("queue ", request.queue, " is not a queue of this session"));
  } else {
    Session::Queue& queue = session.queues[request.queue];
    queue.removing = true;
    DispatcherMessage message(DispatcherMessage::Type::kRemoveQueue, session.id);
    message.queue = {.queue = request.queue};
    Tell(queue.gpu, message);
  }
  Send(session, packet, status, reply);
}

}  // namespace concert::daemon
