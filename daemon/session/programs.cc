// Programs: registered on the control thread, run by dispatchers, and let go of as buffers are.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/session/server.h"
#include "kernels/program/compile.h"
#include "kernels/program/program_times.h"

namespace concert::daemon {

namespace {

// Of one session: with every change of it all of them are copied for whoever looks on. Those that
// the library made of batches, a few for each GPU, leave the client's own their room.
constexpr ptrdiff_t kMaxProgramsOfSession = 256, kMaxBatchProgramsOfSession = 128;

// A run holds the GPU as one op, where a higher class would come in between its ops one by one;
// this is the time of a few large GEMMs.
constexpr double kLongestBatchUs = 1'000;

template <typename T>
bool ReadWhole(int fd, uint64_t offset, std::vector<T>& to) {
  auto* bytes = reinterpret_cast<char*>(to.data());
  const size_t size = to.size() * sizeof(T);
  for (size_t done = 0; done < size;) {
    const ssize_t got = pread(fd, bytes + done, size - done, static_cast<off_t>(offset + done));
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

bool IsOfBatch(const concert_create_program& request) {
  return (request.flags & CONCERT_PROGRAM_OF_BATCH) != 0;
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
  const ptrdiff_t limit = of_batch ? kMaxBatchProgramsOfSession : kMaxProgramsOfSession;
  const ptrdiff_t there =
      std::count_if(session.programs.begin(), session.programs.end(),
                    [&](const auto& entry) { return entry.second.of_batch == of_batch; });
  if (there >= limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the session has ", limit, of_batch ? " programs of batches" : " programs",
                     " and may have no more; free some"));
  }
  const uint64_t bytes = request.op_count * (sizeof(kernels::Op) + sizeof(concert_descriptor));
  return MemoryReserve::Allows(bytes) ? absl::OkStatus() : OutOfMemory();
}

// As dispatchers have them.
std::vector<kernels::BufferRange> RangesOf(const Session& session) {
  std::vector<kernels::BufferRange> ranges;
  for (const Session::Buffer& buffer : session.buffers) {
    const bool there = buffer.used && buffer.releases_due == 0 && !buffer.given_up;
    ranges.push_back({.address = buffer.allocation.address,
                      .bytes = there ? buffer.bytes : 0,
                      .gpu = buffer.allocation.gpu,
                      .pool = buffer.allocation.pool,
                      .sealed = buffer.sealed.has_value(),
                      .generation = buffer.generation});
  }
  return ranges;
}

absl::StatusOr<ProgramText> ReadText(const Session& session, const concert_create_program& request,
                                     int fd) {
  // Only of memory a read never waits.
  if (fcntl(fd, F_GET_SEALS) < 0)
    return absl::InvalidArgumentError("the program's fd is not a memfd");
  ProgramText text{.gpu = static_cast<int>(request.gpu),
                   .buffers = RangesOf(session),
                   .slots = std::vector<concert_program_slot>(request.slot_count),
                   .ops = std::vector<concert_descriptor>(request.op_count)};
  if (!ReadWhole(fd, 0, text.slots) ||
      !ReadWhole(fd, text.slots.size() * sizeof(concert_program_slot), text.ops)) {
    return absl::InvalidArgumentError(absl::StrCat("the program's memfd is shorter than its ",
                                                   request.slot_count, " slots and ",
                                                   request.op_count, " ops"));
  }
  return text;
}

kernels::ProgramSummary SummaryOf(const kernels::Program& program,
                                  const policies::DeviceModel& device) {
  std::map<uint16_t, uint32_t> kinds;
  for (const kernels::Op& op : program.ops) ++kinds[op.kind];
  std::vector<kernels::EngineTimes> engines = kernels::TimesOf(device, program);
  const double predicted_us = engines.front().predicted_us;
  return {.handle = 0,
          .gpu = program.gpu,
          .op_count = static_cast<uint32_t>(program.ops.size()),
          .bindings = static_cast<uint32_t>(program.bindings.size()),
          .kinds = {kinds.begin(), kinds.end()},
          .arena_bytes = program.arena.end - program.arena.begin,
          .slot_bytes = program.slot_bytes,
          .predicted_us = predicted_us,
          .engines = std::make_shared<const std::vector<kernels::EngineTimes>>(std::move(engines)),
          .why_no_step = program.why_no_step};
}

// Whether a batch is better off as single ops while other queues are at work: where launches can
// carry its ops together with theirs, and where others would have to wait for long.
bool OnlyWhileAlone(const kernels::Program& program, double predicted_us) {
  return predicted_us > kLongestBatchUs ||
         std::all_of(program.ops.begin(), program.ops.end(),
                     [](const kernels::Op& op) { return op.work.chains(); });
}

}  // namespace

// Everything is checked before memory is taken; `arena` is the program's from then on.
absl::StatusOr<std::unique_ptr<kernels::Program>> Server::MakeProgram(
    Session& session, const concert_create_program& request, const ProgramText& text,
    Allocation& arena) {
  const kernels::ProgramSource source = text.source();
  const absl::StatusOr<kernels::ArenaPlan> plan = kernels::PlanArena(source);
  if (!plan.ok()) return plan.status();
  Device& device = engine_.node().gpu(source.gpu);
  const uint64_t workspace_bytes = device.program_workspace_bytes();
  const uint64_t bytes = std::max<uint64_t>(plan->bytes + workspace_bytes, 1);
  if (absl::Status status = ChargeBuffer(session, request.gpu, bytes); !status.ok()) return status;
  const absl::StatusOr<Allocation> allocation = device.Allocate(bytes);
  const UniqueFd exported(allocation.ok() ? allocation->export_fd : -1);  // nobody else's
  if (absl::Status status = FinishCharge(session, allocation, bytes); !status.ok()) return status;
  absl::Cleanup give_back = [&] {
    device.Free(*allocation);
    session.account->ReleaseAll(BufferCharges(allocation->bytes));
  };
  absl::StatusOr<std::unique_ptr<kernels::Program>> program =
      kernels::BindProgram(source, *plan, allocation->address);
  if (!program.ok()) return program;
  const Address end = (*program)->arena.end;
  (*program)->workspace = {end, end + workspace_bytes};
  if (absl::Status status = device.Prepare(**program); !status.ok()) return status;
  kernels::SetRunTime(device.info().model, **program);
  std::move(give_back).Cancel();
  arena = *allocation;
  return program;
}

void Server::HandleCreateProgram(Session& session, const Packet& packet) {
  concert_program_reply reply{};
  const absl::Status status =
      Register(session, packet.as<concert_create_program>(), packet.fds[0].get(), reply);
  Send(session, packet, status, reply);
}

absl::Status Server::Register(Session& session, const concert_create_program& request, int fd,
                              concert_program_reply& reply) {
  if (absl::Status status = CheckCounts(session, request); !status.ok()) return status;
  if (!HasRing(session, request.gpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu is ", request.gpu, ", which this session has no ring on"));
  }
  absl::StatusOr<ProgramText> text = ReadText(session, request, fd);
  if (!text.ok()) return text.status();
  const Charge ops{Resource::kProgramOps, request.op_count};
  if (absl::Status status = session.account->ChargeAll({&ops, 1}); !status.ok()) return status;
  Allocation arena;
  absl::StatusOr<std::unique_ptr<kernels::Program>> program =
      MakeProgram(session, request, *text, arena);
  if (!program.ok()) {
    session.account->ReleaseAll({&ops, 1});
    return program.status();
  }
  reply.arena_bytes = arena.bytes;
  for (const uint32_t buffer : (*program)->buffers) ++session.buffers[buffer].programs;
  kernels::ProgramSummary summary =
      SummaryOf(**program, engine_.node().gpu((*program)->gpu).info().model);
  const kernels::Program& registered = **program;
  summary.of_batch = IsOfBatch(request);
  if (summary.of_batch && OnlyWhileAlone(registered, summary.predicted_us))
    reply.flags = CONCERT_PROGRAM_WHILE_ALONE;
  // Without bytes: no operand can be in it.
  reply.program = summary.handle = AddBuffer(session, arena, 0, *std::move(program));
  session.programs[reply.program & kBufferIndexMask] = std::move(summary);
  // Without slots runs have nothing that could lie one below the other.
  if (IsOfBatch(request)) return absl::OkStatus();
  PublishAll(replicas_.Join(registered, *std::move(text), session.id, *session.account));
  return absl::OkStatus();
}

void Server::PublishAll(const std::vector<uint32_t>& sessions) {
  for (const uint32_t id : sessions) Publish(*sessions_.at(id));
}

// No run of it is left. What the client gave up meanwhile goes with its last program.
void Server::ForgetProgram(Session& session, uint32_t index, const kernels::Program& program) {
  session.programs.erase(index);
  PublishAll(replicas_.Leave(program));
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
