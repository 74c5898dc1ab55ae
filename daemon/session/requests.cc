// The control protocol's requests after Hello, one handler each.
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/quota/budget.h"
#include "daemon/session/server.h"

namespace concert::daemon {
namespace {

constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 46;
// Communicators of one session: every one is looked up by its ops.
constexpr size_t kMaxMemberships = 256;

// Its memory is charged to who keeps it.
constexpr std::array kSealedBufferCharges = {Charge{Resource::kBuffers}};

absl::Status IssuerIsBehind() {
  return absl::ResourceExhaustedError(
      "collectives: their thread leaves its messages unread; try again, and if that lasts, a GPU's "
      "driver may hang");
}

// Programs that use the buffer and that the client has not released.
int64_t ProgramsLeft(const Session& session, uint32_t index) {
  if (session.buffers[index].programs == 0) return 0;
  return std::count_if(session.programs.begin(), session.programs.end(), [&](const auto& entry) {
    const Session::Buffer& arena = session.buffers[entry.first];
    const std::vector<uint32_t>& used = arena.program->buffers;
    return arena.releases_due == 0 && std::find(used.begin(), used.end(), index) != used.end();
  });
}

absl::Status CheckSealable(const Session& session, uint32_t index, uint32_t handle) {
  const Session::Buffer& buffer = session.buffers[index];
  if (buffer.program != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", handle, " is a program; only memory can be sealed"));
  }
  if (buffer.sealed) {
    return absl::FailedPreconditionError(
        absl::StrCat("buffer ", handle, " is sealed already; seal it once"));
  }
  const int64_t programs = ProgramsLeft(session, index);
  if (programs == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "buffer ", handle, " is used by ", programs, programs == 1 ? " program" : " programs",
      "; seal weights before the programs that use them are registered"));
}

bool MayTakeLong(uint16_t request) {
  return request == CONCERT_CONTROL_SEAL_BUFFER || request == CONCERT_CONTROL_CREATE_PROGRAM;
}

}  // namespace

void Server::HandleReadable(Session& session) {
  if (session.state != Session::State::kOpen) return;
  // Of a session with an errand only the client's end is watched.
  if (session.awaits_errand || session.errand != nullptr) return Close(session, {});
  for (uint32_t i = 0; i < PerTurn(Work::kRequests) && session.state == Session::State::kOpen;
       ++i) {
    if (MayTakeLong(NextType(session.socket.get()))) return AwaitErrand(session);
    if (!HandleNext(session)) return;
  }
}

// Whether there may be more.
bool Server::HandleNext(Session& session) {
  const uint32_t id = session.id;
  Packet packet;
  const Received received = Receive(session.socket.get(), packet);
  if (received == Received::kNothing) return false;
  if (received == Received::kOver) {
    Close(session, {});
    return false;
  }
  HandlePacket(session, packet);
  CONCERT_CHECK(sessions_.contains(id));  // sessions end in EndSessions only
  return true;
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
  epoll_event event{.events = EPOLLRDHUP | (watch ? EPOLLIN : 0u), .data = {.u64 = session.id}};
  CONCERT_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, session.socket.get(), &event) == 0);
}

template <typename Answer>
void Server::EndErrand(Session& session, const absl::Status& status, Answer& reply) {
  const std::unique_ptr<Packet> request = std::move(session.errand);
  if (session.state == Session::State::kOpen) {
    WatchRequests(session, true);
    return Send(session, *request, status, reply);
  }
  if (--session.releases_due == 0) Release(session);
}
template void Server::EndErrand(Session&, const absl::Status&, concert_program_reply&);

void Server::HandlePacket(Session& session, Packet& packet) {
  const uint16_t type = packet.header().type;
  if (!packet.WellFormed() || type == CONCERT_CONTROL_HELLO) {
    counters_.broken.fetch_add(1, std::memory_order_relaxed);
    Close(session, {CONCERT_ABI_INVALID_ARGUMENT, CONCERT_MESSAGE_SESSION_CLOSED, {}});
    return;
  }
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

// Replies without waiting: a client that does not read its replies loses its session.
template <typename Answer>
void Server::Send(Session& session, const Packet& request, const absl::Status& status,
                  Answer& reply, std::span<const int> fds) {
  Publish(session);
  concert_control_reply& head = reinterpret_cast<concert_control_reply&>(reply);
  if (!Reply(session.socket.get(), request, status, head, sizeof(reply), fds)) Close(session, {});
}
template void Server::Send(Session&, const Packet&, const absl::Status&, concert_hello_reply&,
                           std::span<const int>);
template void Server::Send(Session&, const Packet&, const absl::Status&, concert_program_reply&,
                           std::span<const int>);

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

absl::Status Server::ChargeBuffer(Session& session, uint32_t gpu, uint64_t bytes) {
  if (!HasRing(session, gpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu is ", gpu, ", which this session has no ring on"));
  }
  if (bytes == 0 || bytes > kMaxBufferBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes is ", bytes, "; it must be between 1 and ", kMaxBufferBytes));
  }
  const auto charges = BufferCharges(bytes);
  if (absl::Status status = ChargeEntry(session, charges); !status.ok()) return status;
  if (MemoryReserve::Allows(bytes)) return absl::OkStatus();
  session.account->ReleaseAll(charges);  // the entry stays the session's
  return OutOfMemory();
}

absl::Status Server::ChargeEntry(Session& session, std::span<const Charge> charges) {
  const uint64_t new_entries = session.free_buffers.empty() ? 1 : 0;
  if (session.buffers.size() + new_entries > kBufferIndexMask) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the session has ", session.buffer_count, " buffers and may have no more; release some"));
  }
  for (const int ring : session.gpus) {  // each is told of the buffer
    if (absl::Status status = MayBegin(ring); !status.ok()) return status;
  }
  std::vector<Charge> all(charges.begin(), charges.end());
  all.push_back({Resource::kBufferHandles, new_entries});
  if (absl::Status status = session.account->ChargeAll(all); !status.ok()) return status;
  if (new_entries > 0) {
    session.free_buffers.push_back(static_cast<uint32_t>(session.buffers.size()));
    session.buffers.emplace_back();
  }
  return absl::OkStatus();
}

absl::Status Server::FinishCharge(Session& session, const absl::StatusOr<Allocation>& allocation,
                                  uint64_t bytes) {
  absl::Status status = allocation.status();
  if (status.ok()) {
    const Charge rounding{Resource::kBufferBytes, allocation->bytes - bytes};
    status = session.account->ChargeAll(std::span(&rounding, 1));
    if (status.ok()) return status;
    engine_.node().gpu(allocation->gpu).Free(*allocation);
  }
  // The entry stays the session's.
  session.account->ReleaseAll(BufferCharges(bytes));
  return status;
}

uint32_t Server::AddBuffer(Session& session, const Allocation& allocation, uint64_t bytes,
                           std::shared_ptr<kernels::Program> program,
                           std::optional<SealedMemory::Holding> sealed) {
  const uint32_t index = session.free_buffers.front();
  session.free_buffers.pop_front();
  Session::Buffer& buffer = session.buffers[index];
  buffer.allocation = allocation;
  buffer.bytes = bytes;
  buffer.used = true;
  buffer.program = std::move(program);
  buffer.sealed = sealed;
  ++session.buffer_count;
  session.buffer_bytes += allocation.bytes;
  session.sealed_bytes += sealed ? allocation.bytes : 0;
  session.shared_bytes += sealed && sealed->shared() ? allocation.bytes : 0;
  for (const int gpu : session.gpus) {
    DispatcherMessage message(DispatcherMessage::Type::kAddBuffer, session.id);
    message.buffer = {.handle = index,
                      .range = {.address = allocation.address,
                                .bytes = bytes,
                                .gpu = allocation.gpu,
                                .pool = allocation.pool,
                                .sealed = sealed.has_value(),
                                .generation = buffer.generation,
                                .program = buffer.program.get()}};
    Tell(gpu, message);
  }
  return BufferHandle(index, buffer.generation);
}

// A dispatcher has let go of the buffer that its client released.
void Server::FinishBuffer(Session& session, uint32_t index) {
  Session::Buffer& buffer = session.buffers[index];
  if (--buffer.releases_due > 0) return;
  FreeBuffer(session, index);
  // Its next handle is another one: what the client still says with this one is not found.
  buffer.generation = (buffer.generation + 1) & kBufferGenerationMask;
  if (buffer.generation == kernels::kSlotGeneration) buffer.generation = 0;
  session.free_buffers.push_back(index);
  Publish(session);
}

void Server::FreeBuffer(Session& session, uint32_t index) {
  Session::Buffer& buffer = session.buffers[index];
  CONCERT_CHECK(buffer.used);
  if (const std::shared_ptr<kernels::Program> program = std::move(buffer.program);
      program != nullptr) {
    ForgetProgram(session, index, *program);
  }
  const uint64_t bytes = buffer.allocation.bytes;
  if (buffer.sealed) {
    session.sealed_bytes -= bytes;
    session.shared_bytes -= buffer.sealed->shared() ? bytes : 0;
    if (const std::optional<uint32_t> heir = sealed_memory_.Release(*buffer.sealed))
      EndSharing(*heir, bytes);
    buffer.sealed.reset();
    session.account->Release(Resource::kBuffers);
  } else {
    engine_.node().gpu(buffer.allocation.gpu).Free(buffer.allocation);
    session.account->ReleaseAll(BufferCharges(bytes));
  }
  buffer.used = false;
  --session.buffer_count;
  session.buffer_bytes -= bytes;
}

// Of memory that others had before this session, who have gone.
void Server::EndSharing(uint32_t session, uint64_t bytes) {
  Session& heir = *sessions_.at(session);
  heir.shared_bytes -= bytes;
  const MutexLock lock(mutex_);  // nothing else of it has changed, and it may have much
  summaries_[session].shared_bytes = heir.shared_bytes;
}

void Server::HandleAllocateBuffer(Session& session, const Packet& packet) {
  const concert_allocate_buffer& request = packet.as<concert_allocate_buffer>();
  concert_buffer_reply reply{};
  absl::Status status = ChargeBuffer(session, request.gpu, request.bytes);
  UniqueFd exported;
  if (status.ok()) {
    const absl::StatusOr<Allocation> allocation =
        engine_.node().gpu(static_cast<int>(request.gpu)).Allocate(request.bytes);
    if (allocation.ok()) exported = UniqueFd(allocation->export_fd);
    status = FinishCharge(session, allocation, request.bytes);
    if (status.ok()) {
      reply.buffer = AddBuffer(session, *allocation, request.bytes);
      reply.allocation_bytes = allocation->bytes;
    }
  }
  const int fds[] = {exported.get()};
  Send(session, packet, status, reply, std::span<const int>(fds, status.ok() && exported ? 1 : 0));
}

void Server::HandleImportBuffer(Session& session, const Packet& packet) {
  const concert_import_buffer& request = packet.as<concert_import_buffer>();
  concert_buffer_reply reply{};
  absl::Status status = ChargeBuffer(session, request.gpu, request.bytes);
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
    status = FinishCharge(session, allocation, request.bytes);
    if (status.ok()) {
      reply.buffer = AddBuffer(session, *allocation, request.bytes);
      reply.allocation_bytes = allocation->bytes;
    }
  }
  Send(session, packet, status, reply);
}

void Server::HandleReleaseBuffer(Session& session, const Packet& packet) {
  const concert_release_buffer& request = packet.as<concert_release_buffer>();
  concert_control_reply reply{};
  const absl::StatusOr<uint32_t> index = FindBuffer(session, request.buffer);
  if (index.ok()) GiveUpBuffer(session, *index);
  Send(session, packet, index.status(), reply);
}

absl::StatusOr<uint32_t> Server::FindBuffer(const Session& session, uint32_t handle) const {
  const uint32_t index = handle & kBufferIndexMask;
  if (index < session.buffers.size()) {
    const Session::Buffer& buffer = session.buffers[index];
    const bool there = buffer.used && buffer.releases_due == 0 && !buffer.given_up;
    if (there && BufferHandle(index, buffer.generation) == handle) return index;
  }
  return absl::NotFoundError(absl::StrCat("buffer ", handle,
                                          " is not a buffer of this session; name one that it has "
                                          "and has not released"));
}

void Server::HandleSealBuffer(Session& session, Packet& packet) {
  concert_buffer_reply reply{};
  const absl::StatusOr<uint32_t> index = ChargeSeal(session, packet.as<concert_seal_buffer>());
  if (!index.ok()) return Send(session, packet, index.status(), reply);
  session.errand = std::make_unique<Packet>(std::move(packet));
  const Session::Buffer& buffer = session.buffers[*index];
  errands_.Begin<absl::StatusOr<SealedMemory::Kept>>(
      [this, &account = *session.account, from = buffer.allocation, bytes = buffer.bytes] {
        return sealed_memory_.Keep(account, from, bytes);
      },
      [this, &session, index = *index](const absl::StatusOr<SealedMemory::Kept>& kept) {
        FinishSeal(session, index, kept);
      });
}

// For the sealed buffer's place in the table. The index of the one that is to be sealed.
absl::StatusOr<uint32_t> Server::ChargeSeal(Session& session, const concert_seal_buffer& request) {
  if (request.reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("reserved is ", request.reserved, "; it must be 0"));
  }
  absl::StatusOr<uint32_t> index = FindBuffer(session, request.buffer);
  if (!index.ok()) return index;
  absl::Status status = CheckSealable(session, *index, request.buffer);
  if (status.ok()) status = ChargeEntry(session, kSealedBufferCharges);
  if (!status.ok()) return status;
  return index;
}

void Server::FinishSeal(Session& session, uint32_t index,
                        const absl::StatusOr<SealedMemory::Kept>& kept) {
  concert_buffer_reply reply{};
  if (kept.ok() && session.state == Session::State::kOpen) {
    const SealedMemory::Holding holding = sealed_memory_.Hold(*kept, session.id);
    const uint64_t bytes = session.buffers[index].bytes;
    reply.buffer = AddBuffer(session, holding.allocation(), bytes, nullptr, holding);
    reply.allocation_bytes = holding.allocation().bytes;
    GiveUpBuffer(session, index);
  } else {
    if (kept.ok()) sealed_memory_.GiveUp(*kept);
    session.account->ReleaseAll(kSealedBufferCharges);  // the entry stays the session's
  }
  EndErrand(session, kept.status(), reply);
}

// Now, or with the last program that uses it.
void Server::GiveUpBuffer(Session& session, uint32_t index) {
  if (session.buffers[index].programs > 0) {
    session.buffers[index].given_up = true;
  } else {
    ReleaseBuffer(session, index);
  }
}

void Server::ReleaseBuffer(Session& session, uint32_t index) {
  session.buffers[index].releases_due = static_cast<int>(session.gpus.size());
  for (const int gpu : session.gpus) {
    DispatcherMessage message(DispatcherMessage::Type::kReleaseBuffer, session.id);
    message.buffer = {.handle = index, .range = {}};
    Tell(gpu, message);
  }
}

void Server::HandleJoinCommunicator(Session& session, const Packet& packet) {
  concert_join_communicator_reply reply{};
  const absl::StatusOr<Membership> membership =
      Join(session, packet.as<concert_join_communicator>());
  if (membership.ok()) reply.communicator = membership->handle;
  Send(session, packet, membership.status(), reply);
}

absl::StatusOr<Membership> Server::Join(Session& session,
                                        const concert_join_communicator& request) {
  if (!HasRing(session, request.gpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu is ", request.gpu, ", which this session has no ring on"));
  }
  if (session.memberships.size() >= kMaxMemberships) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the session is in ", kMaxMemberships, " communicators and may join no more; leave some"));
  }
  const int gpu = static_cast<int>(request.gpu);
  if (absl::Status status = MayBegin(gpu); !status.ok()) return status;
  if (to_issuer_.late() > 0) return IssuerIsBehind();
  const Charge charge{Resource::kMemberships};
  if (absl::Status status = session.account->ChargeAll({&charge, 1}); !status.ok()) return status;
  const absl::StatusOr<Communicators::Joined> joined =
      communicators_.Join(session.uid, TextOf(request.name), request.rank, request.ranks, gpu);
  absl::Status status = joined.status();
  if (joined.ok() && joined->complete) status = engine_.node().Connect(joined->gpus);
  if (status.ok()) {
    // Never late: the first part must not overtake it.
    IssuerMessage join(IssuerMessage::Type::kJoin);
    join.communicator = joined->communicator;
    join.rank = request.rank;
    join.join = {
        .ranks = request.ranks, .account = session.account, .session = session.id, .gpu = gpu};
    if (!to_issuer_.TryPush(join)) status = IssuerIsBehind();
  }
  if (!status.ok()) session.account->Release(Resource::kMemberships);
  if (!joined.ok()) return status;
  const Membership membership{.handle = joined->communicator << 8 | request.rank,
                              .communicator = joined->communicator,
                              .rank = request.rank,
                              .ranks = request.ranks};
  if (!status.ok()) {
    // The ranks that wait must not wait for their timeout: as far as they are concerned this one
    // left.
    communicators_.Leave(membership.communicator);
    IssuerMessage leave(IssuerMessage::Type::kLeave);
    leave.communicator = membership.communicator;
    leave.rank = membership.rank;
    to_issuer_.Push(leave);
    return status;
  }
  session.memberships.emplace_back(membership, gpu);
  DispatcherMessage message(DispatcherMessage::Type::kAddMembership, session.id);
  message.membership = membership;
  Tell(gpu, message);
  return membership;
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
  to_issuer_.Push(leave);
  DispatcherMessage message(DispatcherMessage::Type::kRemoveMembership, session.id);
  message.membership = membership;
  Tell(gpu, message);
}

}  // namespace concert::daemon
