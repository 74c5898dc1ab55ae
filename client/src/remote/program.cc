#include "client/src/remote/program.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "client/src/failure.h"
#include "client/src/file_limit.h"
#include "client/src/remote/program_rows.h"

namespace concert::client {
namespace {

int FailEnded(concert_error* error) {
  return Fail(error, CONCERT_FAILED_PRECONDITION,
              "the program is registered and cannot be changed; begin another");
}

// Memory that exists within runs only.
class SlotBuffer final : public concert_buffer {
 public:
  SlotBuffer(uint64_t bytes, std::shared_ptr<const Recording> recording)
      : concert_buffer(bytes, nullptr, recording.get()), recording_(std::move(recording)) {
    id = CONCERT_SLOT_HANDLE(static_cast<uint32_t>(recording_->slots.size()));
  }
  int Address(void**, concert_error* error) override { return FailWithoutMemory(error); }
  int Write(uint64_t, const void*, uint64_t, concert_error* error) override {
    return FailWithoutMemory(error);
  }
  int Read(uint64_t, void*, uint64_t, concert_error* error) override {
    return FailWithoutMemory(error);
  }
  int Seal(concert_error* error) override { return FailWithoutMemory(error); }

 private:
  static int FailWithoutMemory(concert_error* error) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "a slot of a program has no memory that can be reached; bind a buffer to it when "
                "you run the program");
  }

  const std::shared_ptr<const Recording> recording_;
};

// Takes down what is submitted to it.
class RecordingQueue final : public concert_queue {
 public:
  RecordingQueue(std::shared_ptr<RemoteSession> session, std::shared_ptr<Recording> recording)
      : concert_queue(session.get(), recording.get()),
        session_(std::move(session)),
        recording_(std::move(recording)) {}

  concert_ticket last() const override { return {}; }
  int Submit(EncodedOp& op, const concert_submit_options& options, concert_ticket* ticket,
             concert_error* error) override {
    if (recording_->ended) return FailEnded(error);
    if (int code = session_->Require(op.features, op.needs, error)) return code;
    if (options.wait_count != 0 || options.deadline_ns != 0) {
      return Fail(error, CONCERT_INVALID_ARGUMENT,
                  "an op of a program has no waits and no deadline: ops run in the order in which "
                  "they are recorded; give both when you run the program");
    }
    if (recording_->ops.size() == CONCERT_MAX_PROGRAM_OPS) {
      return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "a program may have %d ops",
                  CONCERT_MAX_PROGRAM_OPS);
    }
    recording_->ops.push_back(op.descriptor);
    *ticket = {};
    return CONCERT_OK;
  }

 private:
  const std::shared_ptr<RemoteSession> session_;
  const std::shared_ptr<Recording> recording_;
};

bool WriteWhole(int fd, const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = write(fd, from, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    from += wrote;
    bytes -= static_cast<size_t>(wrote);
  }
  return true;
}

}  // namespace

UniqueFd ProgramFile(std::span<const concert_program_slot> slots,
                     std::span<const concert_descriptor> ops) {
  UniqueFd fd(memfd_create("concert-program", MFD_CLOEXEC));
  if (!fd) return fd;
  const bool written = WriteWhole(fd.get(), slots.data(), slots.size_bytes()) &&
                       WriteWhole(fd.get(), ops.data(), ops.size_bytes());
  return written ? std::move(fd) : UniqueFd();
}

int RemoteProgram::Begin(std::shared_ptr<RemoteSession> session, uint32_t gpu,
                         concert_program** program, concert_queue** queue, concert_error* error) {
  if (int code = session->Require(CONCERT_FEATURE_PROGRAMS, "programs", error)) return code;
  std::unique_ptr<RemoteProgram> made(new RemoteProgram(session, gpu));
  *queue = new RecordingQueue(std::move(session), made->recording_);
  *program = made.release();
  return CONCERT_OK;
}

RemoteProgram::~RemoteProgram() { Release(session_->control().NextDeadline()); }

void RemoteProgram::Release(const Deadline& deadline) {
  for (const Registered& one : registered) session_->ReleaseHandle(one.id, deadline);
  registered.clear();
}

int RemoteProgram::AddSlot(uint32_t role, uint64_t bytes, concert_buffer** buffer,
                           concert_error* error) {
  if (recording_->ended) return FailEnded(error);
  if (recording_->slots.size() == CONCERT_MAX_PROGRAM_SLOTS) {
    return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "a program may have %d slots",
                CONCERT_MAX_PROGRAM_SLOTS);
  }
  *buffer = new SlotBuffer(bytes, recording_);
  recording_->slots.push_back({role, 0, bytes});
  return CONCERT_OK;
}

int RemoteProgram::SetRows(std::span<const uint32_t> rows, concert_error* error) {
  if (recording_->ended) return FailEnded(error);
  if (rows.empty() || rows.size() > CONCERT_ROW_COUNTS_MAX) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "count is %zu; it must be 1 to %d", rows.size(),
                CONCERT_ROW_COUNTS_MAX);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint32_t least = i == 0 ? 1 : rows[i - 1] + 1;
    if (rows[i] < least) {
      return Fail(error, CONCERT_INVALID_ARGUMENT,
                  "rows[%zu] is %u; it must be %u at least: numbers ascend", i, rows[i], least);
    }
  }
  recording_->rows.assign(rows.begin(), rows.end());
  return CONCERT_OK;
}

int RemoteProgram::End(concert_error* error) {
  if (recording_->ended) return FailEnded(error);
  const Deadline deadline = session_->control().NextDeadline();
  if (recording_->rows.empty()) {
    if (int code = Register(0, recording_->ops, deadline, error)) return code;
  } else if (int code = RegisterEachRows(deadline, error)) {
    Release(deadline);
    return code;
  }
  *recording_ = {.slots = {}, .ops = {}, .rows = {}, .ended = true};
  return CONCERT_OK;
}

int RemoteProgram::RegisterEachRows(const Deadline& deadline, concert_error* error) {
  const uint32_t recorded = recording_->rows.back();
  if (!AnyHasRows(recording_->ops, recorded)) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "the program is to have up to %u rows, but no op has so many", recorded);
  }
  for (const uint32_t rows : recording_->rows) {
    concert_error why{};
    const int code = Register(rows, WithRows(recording_->ops, recorded, rows), deadline, &why);
    if (code != CONCERT_OK) return Fail(error, code, "for %u rows: %s", rows, why.message);
  }
  return CONCERT_OK;
}

int RemoteProgram::Register(uint32_t rows, std::span<const concert_descriptor> ops,
                            const Deadline& deadline, concert_error* error) {
  const UniqueFd file = ProgramFile(recording_->slots, ops);
  if (!file && IsNoFdFree(errno)) return FailNoFdFree("the program's memfd", error);
  if (!file) {
    return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "cannot write the program to a memfd: %s",
                strerror(errno));
  }
  concert_create_program request{};
  request.gpu = gpu_;
  request.slot_count = static_cast<uint32_t>(recording_->slots.size());
  request.op_count = static_cast<uint32_t>(ops.size());
  concert_program_reply reply;
  if (int code = session_->CallForRoom(CONCERT_CONTROL_CREATE_PROGRAM, &request, &reply, file.get(),
                                       nullptr, deadline, error)) {
    return code;
  }
  registered.push_back({rows, reply.program});
  return CONCERT_OK;
}

}  // namespace concert::client
