// Buffers of a session: its table of them, and what clients ask for with them.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/session/server.h"

namespace concert::daemon {
namespace {

constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 46;
// Its memory is charged to who keeps it.
constexpr std::array kSealedBufferCharges = {Charge{Resource::kBuffers}};

// Programs that use the buffer and that the client has not released.
int64_t ProgramsLeft(const Session& session, uint32_t index) {
  if (session.buffers[index].programs == 0) return 0;
  const auto uses_it = [&](uint32_t program) {
    const Session::Buffer& arena = session.buffers[program];
    const std::vector<uint32_t>& used = arena.program->buffers;
    return arena.releases_due == 0 && std::find(used.begin(), used.end(), index) != used.end();
  };
  return std::ranges::count_if(session.programs, uses_it) +
         std::ranges::count_if(session.batch_programs, uses_it);
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

}  // namespace

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
    session.ranges.emplace_back();
  }
  return absl::OkStatus();
}

uint32_t Server::AddBuffer(Session& session, const Allocation& allocation, uint64_t bytes,
                           std::shared_ptr<kernels::Program> program,
                           std::optional<SealedMemory::Holding> sealed) {
  const uint32_t index = session.free_buffers.front();
  session.free_buffers.pop_front();
  Session::Buffer& buffer = session.buffers[index];
  buffer.allocation = allocation;
  buffer.used = true;
  buffer.program = std::move(program);
  buffer.sealed = sealed;
  ++session.buffer_count;
  session.buffer_bytes += allocation.bytes;
  session.sealed_bytes += sealed ? allocation.bytes : 0;
  session.shared_bytes += sealed && sealed->shared() ? allocation.bytes : 0;
  kernels::BufferRange& range = session.ranges[index];
  range = {.address = allocation.address,
           .bytes = bytes,
           .gpu = allocation.gpu,
           .pool = allocation.pool,
           .sealed = sealed.has_value(),
           .generation = range.generation,
           .program = buffer.program.get()};
  for (const int gpu : session.gpus) {
    DispatcherMessage message(DispatcherMessage::Type::kAddBuffer, session.id);
    message.buffer = {.handle = index, .range = range};
    Tell(gpu, message);
  }
  return BufferHandle(index, range.generation);
}

// A dispatcher has let go of the buffer that its client released.
void Server::FinishBuffer(Session& session, uint32_t index) {
  Session::Buffer& buffer = session.buffers[index];
  if (--buffer.releases_due > 0) return;
  FreeBuffer(session, index);
  session.free_buffers.push_back(index);
  summaries_.Update(session);
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
  summaries_.Update(heir);
}

void Server::HandleAllocateBuffer(Session& session, Packet& packet) {
  const auto request = packet.as<concert_allocate_buffer>();
  BeginBuffer(session, packet, request.gpu, request.bytes,
              [bytes = request.bytes](Device& device) { return device.Allocate(bytes); });
}

void Server::HandleImportBuffer(Session& session, Packet& packet) {
  const auto request = packet.as<concert_import_buffer>();
  ImportRequest import{.kind = request.kind,
                       .fd = packet.fds.empty() ? -1 : packet.fds[0].get(),
                       .offset = request.offset,
                       .bytes = request.bytes,
                       .allocation_bytes = request.allocation_bytes};
  std::copy(std::begin(request.ipc_handle), std::end(request.ipc_handle),
            import.ipc_handle.begin());
  BeginBuffer(session, packet, request.gpu, request.bytes,
              [import](Device& device) { return device.Import(import); });
}

void Server::BeginBuffer(Session& session, Packet& packet, uint32_t gpu, uint64_t bytes,
                         absl::AnyInvocable<absl::StatusOr<Allocation>(Device&)> make) {
  concert_buffer_reply reply{};
  if (absl::Status status = ChargeBuffer(session, gpu, bytes); !status.ok())
    return Send(session, packet, status, reply);
  BeginErrand<absl::StatusOr<Allocation>>(
      session, packet,
      [&device = engine_.node().gpu(static_cast<int>(gpu)), make = std::move(make)]() mutable {
        return make(device);
      },
      [this, &session, bytes](const absl::StatusOr<Allocation>& allocation) {
        FinishNewBuffer(session, allocation, bytes);
      });
}

// Allocations are larger than what was asked for, and charged as they are.
void Server::FinishNewBuffer(Session& session, const absl::StatusOr<Allocation>& allocation,
                             uint64_t bytes) {
  concert_buffer_reply reply{};
  const UniqueFd exported(allocation.ok() ? allocation->export_fd : -1);
  absl::Status status = allocation.status();
  if (status.ok() && session.state != Session::State::kOpen)
    status = absl::CancelledError("the session has ended");
  if (status.ok()) {
    const Charge rounding{Resource::kBufferBytes, allocation->bytes - bytes};
    status = session.account->ChargeAll({&rounding, 1});
  }
  if (status.ok()) {
    reply.buffer = AddBuffer(session, *allocation, bytes);
    reply.allocation_bytes = allocation->bytes;
  } else {
    if (allocation.ok()) engine_.node().gpu(allocation->gpu).Free(*allocation);
    session.account->ReleaseAll(BufferCharges(bytes));  // the entry stays the session's
  }
  const int fds[] = {exported.get()};
  EndErrand(session, status, reply, std::span<const int>(fds, status.ok() && exported ? 1 : 0));
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
    if (there && BufferHandle(index, session.ranges[index].generation) == handle) return index;
  }
  return absl::NotFoundError(absl::StrCat("buffer ", handle,
                                          " is not a buffer of this session; name one that it has "
                                          "and has not released"));
}

void Server::HandleSealBuffer(Session& session, Packet& packet) {
  concert_buffer_reply reply{};
  const absl::StatusOr<uint32_t> index = ChargeSeal(session, packet.as<concert_seal_buffer>());
  if (!index.ok()) return Send(session, packet, index.status(), reply);
  BeginErrand<absl::StatusOr<SealedMemory::Kept>>(
      session, packet,
      [this, &account = *session.account, from = session.buffers[*index].allocation,
       bytes = session.ranges[*index].bytes] { return sealed_memory_.Keep(account, from, bytes); },
      [this, &session, index = *index](const absl::StatusOr<SealedMemory::Kept>& kept) {
        FinishSeal(session, index, kept);
      });
}

// For the sealed buffer's place in the table. The index of the one that is to be sealed.
absl::StatusOr<uint32_t> Server::ChargeSeal(Session& session, const concert_seal_buffer& request) {
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
    const uint64_t bytes = session.ranges[index].bytes;
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
  // Its next handle is another one: what the client still says with this one is not found.
  uint16_t generation = (session.ranges[index].generation + 1) & kBufferGenerationMask;
  if (generation == kernels::kSlotGeneration) generation = 0;
  session.ranges[index] = {.generation = generation};
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

}  // namespace concert::daemon
