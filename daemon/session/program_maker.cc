#include "daemon/session/program_maker.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "daemon/session/own_memory.h"
#include "kernels/program/compile.h"
#include "kernels/program/program_times.h"

namespace concert::daemon {
namespace {

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

}  // namespace

absl::StatusOr<MadeProgram> MakeProgram(Device& device, Account& account,
                                        const concert_create_program& request, int fd,
                                        std::span<const kernels::BufferRange> buffers) {
  absl::StatusOr<ProgramText> text = ReadText(request, fd);
  if (!text.ok()) return text.status();
  const absl::StatusOr<kernels::ArenaPlan> plan = kernels::PlanArena(text->source(buffers));
  if (!plan.ok()) return plan.status();
  const uint64_t workspace_bytes = device.program_workspace_bytes();
  const absl::StatusOr<Allocation> arena =
      AllocateOwn(device, account, std::max<uint64_t>(plan->bytes + workspace_bytes, 1));
  if (!arena.ok()) return arena.status();
  absl::Cleanup give_back = [&] { FreeOwn(device, account, *arena); };
  absl::StatusOr<std::unique_ptr<kernels::Program>> program =
      kernels::BindProgram(text->source(buffers), *plan, arena->address);
  if (!program.ok()) return program.status();
  const Address end = (*program)->arena.end;
  (*program)->workspace = {end, end + workspace_bytes};
  if (absl::Status status = device.Prepare(**program); !status.ok()) return status;
  kernels::SetRunTime(device.info().model, **program);
  text->buffers.reserve((*program)->buffers.size());
  for (const uint32_t index : (*program)->buffers)
    text->buffers.emplace_back(index, buffers[index]);
  std::move(give_back).Cancel();
  return MadeProgram{.text = std::make_shared<const ProgramText>(*std::move(text)),
                     .program = *std::move(program),
                     .arena = *arena};
}

}  // namespace concert::daemon
