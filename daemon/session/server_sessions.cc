// How sessions begin, with Hello, and end.
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/quota/budget.h"
#include "daemon/session/server.h"

namespace concert::daemon {
namespace {

using kernels::Failure;

// What a session is charged with, beside the descriptor of its socket: itself, an eventfd per ring,
// and the mappings of its two regions.
std::array<Charge, 3> ChargesOf(size_t rings) {
  return {{{Resource::kSessions, 1}, {Resource::kDescriptors, rings}, {Resource::kMappings, 2}}};
}

}  // namespace

void Server::HandleConnection(Connection& connection) {
  Packet packet;
  const Received received = Receive(connection.socket.get(), packet);
  if (received == Received::kNothing) return;
  if (received == Received::kOver || !packet.WellFormed() ||
      packet.header().type != CONCERT_CONTROL_HELLO) {
    if (received == Received::kPacket) counters_.broken.fetch_add(1, std::memory_order_relaxed);
    connections_.Close(connection.key);
    return;
  }
  HandleHello(connections_.Take(connection.key), packet);
}

void Server::HandleHello(Connection connection, const Packet& packet) {
  concert_hello_reply reply{};
  reply.abi_major = CONCERT_ABI_MAJOR;
  reply.abi_minor = CONCERT_ABI_MINOR;
  auto owned = std::make_unique<Session>();
  Session& session = *owned;
  session.account = connection.account;
  session.uid = connection.account->uid();
  session.pid = connection.pid;
  session.connected_at_ns = connection.since_ns;
  session.socket = std::move(connection.socket);
  if (const absl::Status status = OpenSession(session, packet); !status.ok()) {
    counters_.refused.fetch_add(1, std::memory_order_relaxed);
    Reply(session.socket.get(), packet, status, reply.reply, sizeof(reply), {});
    connection.account->Release(Resource::kDescriptors);
    return;
  }
  sessions_.emplace(session.id, std::move(owned));
  Introduce(session);
  reply.session = session.id;
  reply.features = session.memory->page().features;
  reply.gpu_count = static_cast<uint32_t>(engine_.gpu_count());
  reply.layout = session.memory->layout();
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    const DeviceInfo& info = engine_.node().gpu(gpu).info();
    concert_gpu_info& out = reply.gpus[gpu];
    info.name.copy(out.name, sizeof(out.name) - 1);
    std::copy(info.uuid.begin(), info.uuid.end(), out.uuid);
    out.memory_bytes = info.memory_bytes;
    out.sm_count = static_cast<uint32_t>(info.model.sm_count);
    out.device = info.backend == "cuda" ? 2 : 1;
  }
  std::vector<int> fds = {session.memory->client_fd(), session.memory->daemon_fd()};
  for (const UniqueFd& fd : session.event_fds) fds.push_back(fd.get());
  Send(session, packet, absl::OkStatus(), reply, fds);
  // Send may have closed the session; its memory stays until the dispatchers let go.
  session.memory->CloseFds();
}

// An id that no session has: after 2^32 sessions they start again, and 0 stands for "none". That
// ends, since sessions are counted.
uint32_t Server::NextSessionId() {
  while (next_session_ == 0 || sessions_.contains(next_session_)) ++next_session_;
  return next_session_++;
}

// Charges for the session and makes all that it needs. On an error nothing is left behind.
absl::Status Server::OpenSession(Session& session, const Packet& packet) {
  const concert_hello& hello = packet.as<concert_hello>();
  if (hello.abi_major != CONCERT_ABI_MAJOR) {
    return absl::FailedPreconditionError(
        absl::StrCat("the client speaks ABI ", hello.abi_major, ".", hello.abi_minor,
                     ", this daemon ", CONCERT_ABI_MAJOR, ".", CONCERT_ABI_MINOR,
                     "; use a libconcert of the daemon's major version"));
  }
  if (absl::Status status = packet.CheckReserved(); !status.ok()) return status;
  if (draining_ || closing_all_)
    return absl::UnavailableError("the daemon is draining and takes no new sessions");
  const uint64_t all = (uint64_t{1} << engine_.gpu_count()) - 1;  // at most CONCERT_MAX_RINGS
  const uint64_t mask = hello.gpu_mask == 0 ? all : hello.gpu_mask;
  if ((mask & ~all) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gpu_mask is ", hello.gpu_mask, ", but this node has ", engine_.gpu_count(), " GPUs"));
  }
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    if ((mask >> gpu & 1) != 0) session.gpus.push_back(gpu);
  }
  const auto charges = ChargesOf(session.gpus.size());
  if (absl::Status status = session.account->ChargeAll(charges); !status.ok()) return status;
  session.id = NextSessionId();
  absl::Status status = MakeMemory(session, hello);
  if (!status.ok()) session.account->ReleaseAll(charges);
  return status;
}

absl::Status Server::MakeMemory(Session& session, const concert_hello& hello) {
  const uint64_t ring_bytes =
      options_.ring_capacity * (sizeof(concert_descriptor) + sizeof(concert_completion));
  if (!MemoryReserve::Allows(session.gpus.size() * ring_bytes)) return OutOfMemory();
  for (size_t i = 0; i < session.gpus.size(); ++i) {
    session.event_fds.emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!session.event_fds.back())
      return absl::ResourceExhaustedError("the daemon is out of file descriptors");
  }
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data = {.u64 = session.id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, session.socket.get(), &event) != 0)
    return absl::ResourceExhaustedError("the daemon cannot watch one more socket");
  const uint64_t offered = CONCERT_OP_FEATURES | (engine_.node().gpu(0).info().backend == "cuda"
                                                      ? CONCERT_FEATURE_CUDA_MEMORY
                                                      : CONCERT_FEATURE_HOST_MEMORY);
  absl::StatusOr<std::unique_ptr<SessionMemory>> memory =
      SessionMemory::Create({.session = session.id,
                             .features = offered & hello.features,
                             .ring_capacity = options_.ring_capacity,
                             .gpus = session.gpus});
  if (!memory.ok()) return memory.status();
  const absl::StatusOr<Address> address =
      engine_.node().RegisterHostMemory((*memory)->timelines(), (*memory)->timelines_bytes());
  if (!address.ok()) return address.status();
  session.memory = *std::move(memory);
  session.timelines_address = *address;
  session.timelines_registered = true;
  session.queues.resize(session.memory->layout().max_queues);
  session.buffers.resize(1);
  session.ranges.resize(1);
  session.name = TextOf(hello.client_name);
  return absl::OkStatus();
}

// Tells everybody who must know the session before its client acts.
void Server::Introduce(const Session& session) {
  if (options_.on_open) options_.on_open(session);
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    DispatcherMessage message(DispatcherMessage::Type::kAddSession, session.id);
    message.link = {.session = session.id,
                    .uid = session.uid,
                    .account = session.account,
                    .timelines_address = session.timelines_address,
                    .memory = session.memory.get()};
    for (size_t ring = 0; ring < session.gpus.size(); ++ring) {
      if (session.gpus[ring] != gpu) continue;
      message.link.ring = static_cast<int32_t>(ring);
      message.link.event_fd = session.event_fds[ring].get();
    }
    Tell(gpu, message);
  }
}

// The client learns why, dispatchers and communicators let go of the session, and when all have,
// its memory goes: Release, EndSessions, FinishClose.
void Server::Close(Session& session, const Failure& why) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session.socket.get(), nullptr);
  session.state = Session::State::kClosing;
  if (!why.ok()) session.memory->MarkClosed(why);
  session.socket = UniqueFd();
  session.account->Release(Resource::kDescriptors);
  while (!session.memberships.empty()) {
    const auto [membership, gpu] = session.memberships.back();
    Leave(session, membership, gpu);
  }
  request_turns_.Forget(session.id);
  errand_turns_.Forget(session.id);
  session.awaits_errand = false;
  session.releases_due = engine_.gpu_count() + (session.errand != nullptr ? 1 : 0);
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    Tell(gpu, DispatcherMessage(DispatcherMessage::Type::kRemoveSession, session.id));
  }
  summaries_.Update(session);
}

void Server::CloseAll() {
  closing_all_ = true;
  listener_ = UniqueFd();  // and who waits to be accepted
  while (connections_.CloseOne()) {
  }
  for (const auto& [id, session] : sessions_) {
    if (session->state != Session::State::kOpen) continue;
    Close(*session, {CONCERT_ABI_UNAVAILABLE, CONCERT_MESSAGE_SESSION_CLOSED, {}});
  }
}

void Server::Release(Session& session) {
  session.state = Session::State::kEnding;
  ending_.push_back(session.id);
}

// Frees buffers of sessions that end, a number per turn: one session may have thousands, and others
// want to connect meanwhile.
void Server::EndSessions() {
  uint32_t budget = PerTurn(Work::kBuffers);
  while (!ending_.empty() && budget > 0) {
    Session& session = *sessions_.at(ending_.front());
    for (; session.freed < session.buffers.size() && budget > 0; ++session.freed) {
      if (!session.buffers[session.freed].used) continue;
      FreeBuffer(session, session.freed);
      --budget;
    }
    if (session.freed < session.buffers.size()) return;
    ending_.pop_front();
    FinishClose(session);
  }
}

void Server::FinishClose(Session& session) {
  CONCERT_CHECK(session.buffer_count == 0 && session.buffer_bytes == 0);
  if (session.timelines_registered)
    engine_.node().UnregisterHostMemory(session.memory->timelines());
  if (options_.on_close) options_.on_close(session);
  Account& account = *session.account;
  account.Release(Resource::kQueues, session.queue_count);
  account.Release(Resource::kBufferHandles, session.buffers.size() - 1);
  const auto charges = ChargesOf(session.gpus.size());
  summaries_.Remove(session.id);
  sessions_.erase(session.id);
  // Last, since from here on there may be another in its place.
  account.ReleaseAll(charges);
}

}  // namespace concert::daemon
