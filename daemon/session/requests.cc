// The control protocol's requests, one handler each.
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"
#include "daemon/session/server.h"

namespace concert::daemon {
namespace {

using kernels::Failure;

// Requests handled for one session before others have their turn.
constexpr int kRequestsPerTurn = 16;
// What a client may send along: one fd, with an import.
constexpr size_t kMaxFds = 4;
// Handles are never reused, and every one costs the dispatchers a table entry.
constexpr uint32_t kMaxBufferHandles = 1u << 20;
constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 46;
// Communicators of one session: every one is looked up by its ops and remembered by the issuer.
constexpr size_t kMaxMemberships = 256;

// Text from a fixed array that need not end in zero.
template <size_t N>
std::string Text(const char (&text)[N]) {
  return {text, strnlen(text, N)};
}

size_t SizeOf(uint16_t type) {
  switch (type) {
    case CONCERT_CONTROL_HELLO:
      return sizeof(concert_hello);
    case CONCERT_CONTROL_CREATE_QUEUE:
      return sizeof(concert_create_queue);
    case CONCERT_CONTROL_DESTROY_QUEUE:
      return sizeof(concert_destroy_queue);
    case CONCERT_CONTROL_ALLOCATE_BUFFER:
      return sizeof(concert_allocate_buffer);
    case CONCERT_CONTROL_IMPORT_BUFFER:
      return sizeof(concert_import_buffer);
    case CONCERT_CONTROL_RELEASE_BUFFER:
      return sizeof(concert_release_buffer);
    case CONCERT_CONTROL_JOIN_COMMUNICATOR:
      return sizeof(concert_join_communicator);
    case CONCERT_CONTROL_LEAVE_COMMUNICATOR:
      return sizeof(concert_leave_communicator);
  }
  return 0;
}

uint32_t AbiStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnavailable:
      return static_cast<uint32_t>(status.raw_code());
    case absl::StatusCode::kAlreadyExists:
      return CONCERT_ABI_FAILED_PRECONDITION;
    default:
      return CONCERT_ABI_INTERNAL;
  }
}

}  // namespace

void Server::HandleReadable(Session& session) {
  if (session.state == Session::State::kClosing) return;
  const uint32_t id = session.id;
  for (int i = 0; i < kRequestsPerTurn; ++i) {
    Packet packet;
    if (!Receive(session, packet)) return;
    HandlePacket(session, packet);
    // The request may have ended the session.
    const auto found = sessions_.find(id);
    if (found == sessions_.end() || found->second->state == Session::State::kClosing) return;
  }
}

// False if there is nothing to read or the session is over.
bool Server::Receive(Session& session, Packet& packet) {
  iovec data{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(session.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  // An empty packet looks like the end of the connection, but fds may have come with it.
  for (cmsghdr* part = size >= 0 ? CMSG_FIRSTHDR(&message) : nullptr; part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      packet.fds.emplace_back(fd);
    }
  }
  packet.size = size > 0 ? static_cast<size_t>(size) : 0;
  const bool whole = size > 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (!whole || packet.size < sizeof(concert_control_header)) {
    Close(session, {});  // gone, or not speaking the protocol
    return false;
  }
  return true;
}

void Server::HandlePacket(Session& session, Packet& packet) {
  const concert_control_header& header = packet.header();
  const bool hello = header.type == CONCERT_CONTROL_HELLO;
  const size_t fds_expected =
      header.type == CONCERT_CONTROL_IMPORT_BUFFER &&
              packet.size == sizeof(concert_import_buffer) &&
              packet.as<concert_import_buffer>().kind != CONCERT_IMPORT_CUDA_IPC
          ? 1
          : 0;
  if (header.magic != CONCERT_CONTROL_MAGIC || header.size != packet.size ||
      packet.size != SizeOf(header.type) || packet.fds.size() != fds_expected ||
      hello != (session.state == Session::State::kConnected)) {
    counters_.broken.fetch_add(1, std::memory_order_relaxed);
    Close(session, {CONCERT_ABI_INVALID_ARGUMENT, CONCERT_MESSAGE_SESSION_CLOSED, {}});
    return;
  }
  switch (header.type) {
    case CONCERT_CONTROL_HELLO:
      return HandleHello(session, packet);
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
    case CONCERT_CONTROL_JOIN_COMMUNICATOR:
      return HandleJoinCommunicator(session, packet);
    case CONCERT_CONTROL_LEAVE_COMMUNICATOR:
      return HandleLeaveCommunicator(session, packet);
  }
}

// Replies without waiting: a client that does not read its replies loses its session.
template <typename Reply>
void Server::Send(Session& session, const Packet& request, const absl::Status& status, Reply& reply,
                  std::span<const int> fds) {
  concert_control_reply& head = *reinterpret_cast<concert_control_reply*>(&reply);
  head.header = {.magic = CONCERT_CONTROL_MAGIC,
                 .type = request.header().type,
                 .size = sizeof(Reply),
                 .request = request.header().request,
                 .reserved = 0};
  head.status = AbiStatus(status);
  const size_t length = std::min(status.message().size(), sizeof(head.message) - 1);
  status.message().copy(head.message, length);
  head.message[length] = '\0';

  iovec data{&reply, sizeof(Reply)};
  alignas(cmsghdr) char control[CMSG_SPACE((2 + CONCERT_MAX_RINGS) * sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  if (sendmsg(session.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof(Reply))) {
    Close(session, {});
    return;
  }
  Publish();
}

void Server::HandleHello(Session& session, const Packet& packet) {
  const concert_hello& hello = packet.as<concert_hello>();
  concert_hello_reply reply{};
  reply.abi_major = CONCERT_ABI_MAJOR;
  reply.abi_minor = CONCERT_ABI_MINOR;
  const absl::Status status = OpenSession(session, hello);
  if (!status.ok()) {
    counters_.refused.fetch_add(1, std::memory_order_relaxed);
    const uint32_t id = session.id;
    Send(session, packet, status, reply);
    if (const auto found = sessions_.find(id); found != sessions_.end()) Close(*found->second, {});
    return;
  }
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
  if (options_.on_open) options_.on_open(session);
  // Close above may have ended the session; its memory stays until the dispatchers let go.
  session.memory->CloseFds();
}

// Makes the session's memory and tells every dispatcher. On an error nothing is left behind.
absl::Status Server::OpenSession(Session& session, const concert_hello& hello) {
  if (hello.abi_major != CONCERT_ABI_MAJOR) {
    return absl::FailedPreconditionError(
        absl::StrCat("the client speaks ABI ", hello.abi_major, ".", hello.abi_minor,
                     ", this daemon ", CONCERT_ABI_MAJOR, ".", CONCERT_ABI_MINOR,
                     "; use a libconcert of the daemon's major version"));
  }
  if (draining_) return absl::UnavailableError("the daemon is draining and takes no new sessions");
  const size_t sessions_of_uid = usage_.contains(session.uid) ? usage_[session.uid].sessions : 0;
  if (sessions_.size() - connecting_ >= options_.max_sessions ||
      sessions_of_uid >= options_.max_sessions_per_uid) {
    return absl::ResourceExhaustedError(
        absl::StrCat("uid ", session.uid, " has ", sessions_of_uid, " of ",
                     options_.max_sessions_per_uid, " sessions and the daemon ",
                     sessions_.size() - connecting_, " of ", options_.max_sessions));
  }
  const uint64_t all = (uint64_t{1} << engine_.gpu_count()) - 1;  // at most CONCERT_MAX_RINGS
  const uint64_t mask = hello.gpu_mask == 0 ? all : hello.gpu_mask;
  if ((mask & ~all) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gpu_mask is ", hello.gpu_mask, ", but this node has ", engine_.gpu_count(), " GPUs"));
  }
  std::vector<int> gpus;
  std::vector<UniqueFd> event_fds;
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    if ((mask >> gpu & 1) == 0) continue;
    gpus.push_back(gpu);
    event_fds.emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_fds.back())
      return absl::ResourceExhaustedError("the daemon is out of file descriptors");
  }
  const uint64_t offered = CONCERT_FEATURE_FP8 | (engine_.node().gpu(0).info().backend == "cuda"
                                                      ? CONCERT_FEATURE_CUDA_MEMORY
                                                      : CONCERT_FEATURE_HOST_MEMORY);
  absl::StatusOr<std::unique_ptr<SessionMemory>> memory =
      SessionMemory::Create({.session = session.id,
                             .features = offered & hello.features,
                             .ring_capacity = options_.ring_capacity,
                             .gpus = gpus});
  if (!memory.ok()) return memory.status();
  const absl::StatusOr<Address> address =
      engine_.node().RegisterHostMemory((*memory)->timelines(), (*memory)->timelines_bytes());
  if (!address.ok()) return address.status();

  session.memory = *std::move(memory);
  session.timelines_address = *address;
  session.timelines_registered = true;
  session.gpus = std::move(gpus);
  session.event_fds = std::move(event_fds);
  session.queues.resize(session.memory->layout().max_queues);
  session.name = Text(hello.client_name);
  session.state = Session::State::kOpen;
  --connecting_;
  ++usage_[session.uid].sessions;
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    DispatcherMessage message(DispatcherMessage::Type::kAddSession, session.id);
    message.link = {.session = session.id,
                    .uid = session.uid,
                    .timelines_address = session.timelines_address,
                    .memory = session.memory.get()};
    for (size_t ring = 0; ring < session.gpus.size(); ++ring) {
      if (session.gpus[ring] != gpu) continue;
      message.link.ring = static_cast<int32_t>(ring);
      message.link.event_fd = session.event_fds[ring].get();
    }
    Tell(gpu, message);
  }
  return absl::OkStatus();
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
  } else {
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

absl::Status Server::CheckNewBuffer(const Session& session, uint32_t gpu, uint64_t bytes) {
  if (!HasRing(session, gpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu is ", gpu, ", which this session has no ring on"));
  }
  if (bytes == 0 || bytes > kMaxBufferBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes is ", bytes, "; it must be between 1 and ", kMaxBufferBytes));
  }
  const size_t buffers = usage_[session.uid].buffers;
  if (buffers >= options_.max_buffers_per_uid) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "uid ", session.uid, " holds ", buffers, " buffers and may hold no more; release some"));
  }
  const uint64_t used = usage_[session.uid].buffer_bytes;
  if (used + bytes > options_.max_buffer_bytes_per_uid) {
    return absl::ResourceExhaustedError(
        absl::StrCat("uid ", session.uid, " holds ", used, " bytes and may hold ",
                     options_.max_buffer_bytes_per_uid, "; release some"));
  }
  if (session.next_buffer >= kMaxBufferHandles) {
    return absl::ResourceExhaustedError(
        "the session has used all of its buffer handles; connect again");
  }
  return absl::OkStatus();
}

uint32_t Server::AddBuffer(Session& session, const Allocation& allocation, uint64_t bytes) {
  const uint32_t handle = session.next_buffer++;
  session.buffers[handle] = {
      .allocation = allocation, .charged_bytes = allocation.bytes, .releases_due = 0};
  usage_[session.uid].buffer_bytes += allocation.bytes;
  ++usage_[session.uid].buffers;
  for (const int gpu : session.gpus) {
    DispatcherMessage message(DispatcherMessage::Type::kAddBuffer, session.id);
    message.buffer = {.handle = handle,
                      .range = {.address = allocation.address,
                                .bytes = bytes,
                                .gpu = allocation.gpu,
                                .pool = allocation.pool}};
    Tell(gpu, message);
  }
  return handle;
}

void Server::HandleAllocateBuffer(Session& session, const Packet& packet) {
  const concert_allocate_buffer& request = packet.as<concert_allocate_buffer>();
  concert_buffer_reply reply{};
  absl::Status status = CheckNewBuffer(session, request.gpu, request.bytes);
  UniqueFd exported;
  if (status.ok()) {
    const absl::StatusOr<Allocation> allocation =
        engine_.node().gpu(static_cast<int>(request.gpu)).Allocate(request.bytes);
    status = allocation.status();
    if (allocation.ok()) {
      exported = UniqueFd(allocation->export_fd);
      reply.buffer = AddBuffer(session, *allocation, request.bytes);
      reply.allocation_bytes = allocation->bytes;
    }
  }
  const int fds[] = {exported.get()};
  Send(session, packet, status, reply, std::span<const int>(fds, exported ? 1 : 0));
}

void Server::HandleImportBuffer(Session& session, const Packet& packet) {
  const concert_import_buffer& request = packet.as<concert_import_buffer>();
  concert_buffer_reply reply{};
  absl::Status status = CheckNewBuffer(session, request.gpu, request.bytes);
  if (status.ok()) {
    ImportRequest import{.kind = request.kind,
                         .fd = packet.fds.empty() ? -1 : packet.fds[0].get(),
                         .offset = request.offset,
                         .bytes = request.bytes,
                         .allocation_bytes = request.allocation_bytes};
    std::copy(std::begin(request.ipc_handle), std::end(request.ipc_handle),
              import.ipc_handle.begin());
    const absl::StatusOr<Allocation> allocation =
        engine_.node().gpu(static_cast<int>(request.gpu)).Import(import);
    status = allocation.status();
    if (allocation.ok()) {
      reply.buffer = AddBuffer(session, *allocation, request.bytes);
      reply.allocation_bytes = allocation->bytes;
    }
  }
  Send(session, packet, status, reply);
}

void Server::HandleReleaseBuffer(Session& session, const Packet& packet) {
  const concert_release_buffer& request = packet.as<concert_release_buffer>();
  concert_control_reply reply{};
  absl::Status status;
  const auto found = session.buffers.find(request.buffer);
  if (found == session.buffers.end() || found->second.releases_due > 0) {
    status = absl::NotFoundError(
        absl::StrCat("buffer ", request.buffer, " is not a buffer of this session"));
  } else {
    found->second.releases_due = static_cast<int>(session.gpus.size());
    for (const int gpu : session.gpus) {
      DispatcherMessage message(DispatcherMessage::Type::kReleaseBuffer, session.id);
      message.buffer = {.handle = request.buffer, .range = {}};
      Tell(gpu, message);
    }
  }
  Send(session, packet, status, reply);
}

void Server::HandleJoinCommunicator(Session& session, const Packet& packet) {
  const concert_join_communicator& request = packet.as<concert_join_communicator>();
  concert_join_communicator_reply reply{};
  absl::Status status;
  if (!HasRing(session, request.gpu)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("gpu is ", request.gpu, ", which this session has no ring on"));
    return Send(session, packet, status, reply);
  }
  if (session.memberships.size() >= kMaxMemberships) {
    status = absl::ResourceExhaustedError(absl::StrCat(
        "the session is in ", kMaxMemberships, " communicators and may join no more; leave some"));
    return Send(session, packet, status, reply);
  }
  const int gpu = static_cast<int>(request.gpu);
  const absl::StatusOr<Communicators::Joined> joined =
      communicators_.Join(session.uid, Text(request.name), request.rank, request.ranks, gpu);
  status = joined.status();
  if (joined.ok() && joined->complete) status = engine_.node().Connect(joined->gpus);
  if (joined.ok() && !status.ok()) {
    // The ranks that wait must not wait for their timeout: as far as they are concerned this one
    // left.
    communicators_.Leave(joined->communicator);
    IssuerMessage leave(IssuerMessage::Type::kLeave);
    leave.communicator = joined->communicator;
    leave.rank = request.rank;
    TellIssuer(leave);
  } else if (joined.ok()) {
    const Membership membership{.handle = joined->communicator << 8 | request.rank,
                                .communicator = joined->communicator,
                                .rank = request.rank,
                                .ranks = request.ranks};
    session.memberships.emplace_back(membership, gpu);
    IssuerMessage join(IssuerMessage::Type::kJoin);
    join.communicator = joined->communicator;
    join.rank = request.rank;
    join.ranks = request.ranks;
    TellIssuer(join);
    DispatcherMessage message(DispatcherMessage::Type::kAddMembership, session.id);
    message.membership = membership;
    Tell(gpu, message);
    reply.communicator = membership.handle;
  }
  Send(session, packet, status, reply);
}

void Server::HandleLeaveCommunicator(Session& session, const Packet& packet) {
  const concert_leave_communicator& request = packet.as<concert_leave_communicator>();
  concert_control_reply reply{};
  absl::Status status;
  const auto found =
      std::find_if(session.memberships.begin(), session.memberships.end(),
                   [&](const auto& entry) { return entry.first.handle == request.communicator; });
  if (found == session.memberships.end()) {
    status = absl::NotFoundError(
        absl::StrCat("communicator ", request.communicator, " is not one this session has joined"));
  } else {
    const auto [membership, gpu] = *found;
    Leave(session, membership, gpu);
  }
  Send(session, packet, status, reply);
}

void Server::Leave(Session& session, const Membership& membership, int gpu) {
  std::erase_if(session.memberships,
                [&](const auto& entry) { return entry.first.handle == membership.handle; });
  communicators_.Leave(membership.communicator);
  IssuerMessage leave(IssuerMessage::Type::kLeave);
  leave.communicator = membership.communicator;
  leave.rank = membership.rank;
  TellIssuer(leave);
  DispatcherMessage message(DispatcherMessage::Type::kRemoveMembership, session.id);
  message.membership = membership;
  Tell(gpu, message);
}

}  // namespace concert::daemon
