// Programs: registered here, run by dispatchers, and let go of as buffers are.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/session/own_memory.h"
#include "daemon/session/server.h"

namespace concert::daemon {

namespace {

// Of one session: all of them are copied at once for whoever looks on. Those that the library made
// of batches, a few for each GPU, leave the client's own their room.
constexpr size_t kMaxProgramsOfSession = 256, kMaxBatchProgramsOfSession = 128;

std::array<Charge, 2> ChargesOfProgram(uint32_t op_count) {
  return {{{Resource::kProgramOps, op_count}, {Resource::kBuffers}}};
}

absl::Status CheckCounts(const Session& session, const concert_create_program& request) {
  if (request.op_count == 0 || request.op_count > CONCERT_MAX_PROGRAM_OPS) {
    return absl::InvalidArgumentError(absl::StrCat("op_count is ", request.op_count,
                                                   "; a program has between 1 and ",
                                                   int{CONCERT_MAX_PROGRAM_OPS}, " ops"));
  }
  if (request.slot_count > CONCERT_MAX_PROGRAM_SLOTS) {
    return absl::InvalidArgumentError(absl::StrCat("slot_count is ", request.slot_count,
                                                   "; a program has at most ",
                                                   int{CONCERT_MAX_PROGRAM_SLOTS}, " slots"));
  }
  if ((request.flags & ~uint32_t{CONCERT_PROGRAM_OF_BATCH}) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("flags is ", request.flags,
                                                   "; the only flag of a program is ",
                                                   int{CONCERT_PROGRAM_OF_BATCH}, " (of a batch)"));
  }
  const bool of_batch = IsOfBatch(request);
  if (of_batch && request.slot_count > 0) {
    return absl::InvalidArgumentError(absl::StrCat("slot_count is ", request.slot_count,
                                                   "; a program that is a batch has no slots"));
  }
  const size_t limit = of_batch ? kMaxBatchProgramsOfSession : kMaxProgramsOfSession;
  if ((of_batch ? session.batch_programs : session.programs).size() >= limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the session has ", limit, of_batch ? " programs of batches" : " programs",
                     " and may have no more; free some"));
  }
  const uint64_t bytes = request.op_count * (sizeof(kernels::Op) + sizeof(concert_descriptor));
  return MemoryReserve::Allows(bytes) ? absl::OkStatus() : OutOfMemory();
}

}  // namespace

void Server::HandleCreateProgram(Session& session, Packet& packet) {
  const auto request = packet.as<concert_create_program>();
  concert_program_reply reply{};
  if (absl::Status status = ChargeProgram(session, request); !status.ok())
    return Send(session, packet, status, reply);
  BeginErrand<absl::StatusOr<MadeProgram>>(
      session, packet,
      [&device = engine_.node().gpu(static_cast<int>(request.gpu)), &account = *session.account,
       request, fd = packet.fds[0].get(),
       &buffers = session.ranges] { return MakeProgram(device, account, request, fd, buffers); },
      [this, &session](absl::StatusOr<MadeProgram> made) {
        FinishProgram(session, std::move(made));
      });
}

// What it takes besides its arena.
absl::Status Server::ChargeProgram(Session& session, const concert_create_program& request) {
  if (absl::Status status = CheckCounts(session, request); !status.ok()) return status;
  if (!HasRing(session, request.gpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu is ", request.gpu, ", which this session has no ring on"));
  }
  return ChargeEntry(session, ChargesOfProgram(request.op_count));
}

void Server::FinishProgram(Session& session, absl::StatusOr<MadeProgram> made) {
  const auto request = session.errand->as<concert_create_program>();
  concert_program_reply reply{};
  if (!made.ok() || session.state != Session::State::kOpen) {
    if (made.ok()) {
      made->program.reset();  // before what it lies in
      FreeOwn(engine_.node().gpu(made->arena.gpu), *session.account, made->arena);
    }
    session.account->ReleaseAll(ChargesOfProgram(request.op_count));  // its entry stays
    return EndErrand(session, made.status(), reply);
  }
  for (const uint32_t buffer : made->program->buffers) ++session.buffers[buffer].programs;
  reply.flags = made->batch_flags;
  reply.arena_bytes = made->arena.bytes;
  // Without bytes: no operand can be in it.
  reply.program = made->summary.handle = AddBuffer(session, made->arena, 0, made->program);
  const uint32_t index = reply.program & kBufferIndexMask;
  (made->summary.of_batch ? session.batch_programs : session.programs).insert(index);
  summaries_.AddProgram(session.id, index, std::move(made->summary));
  std::optional<Replicas::Joining> joining;
  if (made->for_replicas) {
    joining = replicas_.Join(made->program, *std::move(made->for_replicas), session.id, index,
                             *session.account);
  }
  if (!joining) return EndErrand(session, absl::OkStatus(), reply);
  UniteReplicas(session, *joining, reply);
}

// The session's newest program and its replicas. Its client has the answer behind that, so that
// runs which it submits then go together with theirs.
void Server::UniteReplicas(Session& session, const Replicas::Joining& joining,
                           concert_program_reply reply) {
  errands_.Begin<Replicas::Made>(
      [this, joining] { return replicas_.MakePass(joining); },
      [this, &session, joining, reply](Replicas::Made made) mutable {
        summaries_.SetReplicas(replicas_.Unite(joining, std::move(made)));
        EndErrand(session, absl::OkStatus(), reply);
      });
}

// No run of it is left. What the client gave up meanwhile goes with its last program.
void Server::ForgetProgram(Session& session, uint32_t index, const kernels::Program& program) {
  session.programs.erase(index);
  session.batch_programs.erase(index);
  summaries_.RemoveProgram(session.id, index);
  summaries_.SetReplicas(replicas_.Leave(program));
  session.account->Release(Resource::kProgramOps, program.ops.size());
  if (session.state != Session::State::kOpen) return;  // all its buffers go
  for (const uint32_t used : program.buffers) {
    Session::Buffer& buffer = session.buffers[used];
    CONCERT_CHECK(buffer.used && buffer.programs > 0);
    if (--buffer.programs > 0 || !buffer.given_up) continue;
    buffer.given_up = false;
    ReleaseBuffer(session, used);
  }
}

}  // namespace concert::daemon
