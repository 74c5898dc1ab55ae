#include "daemon/session/program_maker.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "daemon/session/own_memory.h"
#include "kernels/program/compile.h"
#include "kernels/program/program_times.h"

namespace concert::daemon {
namespace {

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

absl::StatusOr<ProgramText> ReadText(const concert_create_program& request, int fd) {
  // Only of memory a read never waits.
  if (fcntl(fd, F_GET_SEALS) < 0)
    return absl::InvalidArgumentError("the program's fd is not a memfd");
  ProgramText text{.gpu = static_cast<int>(request.gpu),
                   .slots = std::vector<concert_program_slot>(request.slot_count),
                   .ops = std::vector<concert_descriptor>(request.op_count),
                   .buffers = {}};
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
          .workspace_bytes = program.workspace.end - program.workspace.begin,
          .predicted_us = predicted_us,
          .engines = std::make_shared<const std::vector<kernels::EngineTimes>>(std::move(engines)),
          .why_no_step = program.why_no_step};
}

// When a batch is better off as single ops while other queues are at work: where launches can carry
// its ops together with theirs, but for what the step kernel runs beside other programs, and where
// others would have to wait for long.
uint32_t FlagsOfBatch(const kernels::Program& program, double predicted_us) {
  if (predicted_us > kLongestBatchUs) return CONCERT_PROGRAM_WHILE_ALONE;
  const bool goes_with_others = std::all_of(program.ops.begin(), program.ops.end(),
                                            [](const kernels::Op& op) { return op.work.chains(); });
  if (!goes_with_others) return 0;
  const bool has_step = program.why_no_step.empty();
  return CONCERT_PROGRAM_WHILE_ALONE | (has_step ? CONCERT_PROGRAM_BESIDE_RUNS : 0);
}

}  // namespace

absl::StatusOr<MadeProgram> MakeProgram(Device& device, Account& account,
                                        const concert_create_program& request, int fd,
                                        std::span<const kernels::BufferRange> buffers) {
  absl::StatusOr<ProgramText> text = ReadText(request, fd);
  if (!text.ok()) return text.status();
  const absl::StatusOr<kernels::ArenaPlan> plan = kernels::PlanArena(text->source(buffers));
  if (!plan.ok()) return plan.status();
  absl::StatusOr<std::unique_ptr<kernels::Program>> program =
      kernels::BindProgram(text->source(buffers), *plan, kernels::kUnplacedArena);
  if (!program.ok()) return program.status();
  const uint64_t workspace_bytes = device.WorkspaceBytes(**program);
  const absl::StatusOr<Allocation> arena =
      AllocateOwn(device, account, std::max<uint64_t>(plan->bytes + workspace_bytes, 1));
  if (!arena.ok()) return arena.status();
  absl::Cleanup give_back = [&] { FreeOwn(device, account, *arena); };
  program = kernels::BindProgram(text->source(buffers), *plan, arena->address);
  if (!program.ok()) return program.status();
  const Address end = (*program)->arena.end;
  (*program)->workspace = {end, end + workspace_bytes};
  if (absl::Status status = device.Prepare(**program); !status.ok()) return status;
  kernels::SetRunTime(device.info().model, **program);
  MadeProgram made{.program = *std::move(program), .arena = *arena};
  made.summary = SummaryOf(*made.program, device.info().model);
  made.summary.of_batch = IsOfBatch(request);
  if (made.summary.of_batch) {
    // Without slots runs have nothing that could lie one below the other.
    made.batch_flags = FlagsOfBatch(*made.program, made.summary.predicted_us);
  } else {
    text->buffers.reserve(made.program->buffers.size());
    for (const uint32_t index : made.program->buffers)
      text->buffers.emplace_back(index, buffers[index]);
    made.for_replicas = Replicas::LikenessOf(*made.program, *std::move(text));
  }
  std::move(give_back).Cancel();
  return made;
}

}  // namespace concert::daemon
