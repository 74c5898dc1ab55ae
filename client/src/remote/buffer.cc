#include "client/src/remote/buffer.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "client/src/failure.h"
#include "client/src/file_limit.h"
#include "client/src/pointer_import.h"
#include "proto/ring/control_abi.h"

namespace concert::client {
namespace {

// What the daemon is told about memory of the client's. `pointer` memory is looked up in CUDA.
int Describe(const concert_import& import, const concert_gpu& info, concert_import_buffer* request,
             concert_error* error) {
  request->gpu = import.gpu;
  request->kind = import.memory;
  request->offset = import.offset;
  request->bytes = import.bytes;
  request->allocation_bytes =
      import.allocation_bytes != 0 ? import.allocation_bytes : import.offset + import.bytes;
  std::memcpy(request->ipc_handle, import.ipc_handle, sizeof(request->ipc_handle));
  switch (import.memory) {
    case CONCERT_MEMORY_CUDA_IPC:
      return CONCERT_OK;
    case CONCERT_MEMORY_CUDA_VMM:
    case CONCERT_MEMORY_MEMFD:
      if (import.fd >= 0) return CONCERT_OK;
      return Fail(error, CONCERT_INVALID_ARGUMENT, "fd is %d", import.fd);
    case CONCERT_MEMORY_CUDA_POINTER: {
      if (info.backend == CONCERT_BACKEND_SIM) {
        return Fail(
            error, CONCERT_FAILED_PRECONDITION,
            "memory of CUDA cannot be imported: the daemon runs on simulated GPUs; allocate "
            "a buffer and write to it");
      }
      cuda::PointerInfo found;
      if (int code = FindAllocation(import, info.uuid, &found, error)) return code;
      request->kind = CONCERT_IMPORT_CUDA_IPC;
      request->offset = import.pointer - found.base;
      request->allocation_bytes = found.allocation_bytes;
      std::memcpy(request->ipc_handle, found.ipc_handle, sizeof(request->ipc_handle));
      return CONCERT_OK;
    }
  }
  return Fail(error, CONCERT_INVALID_ARGUMENT, "memory is %u; it must be between 1 and %d",
              import.memory, CONCERT_MEMORY_CUDA_POINTER);
}

}  // namespace

RemoteBuffer::RemoteBuffer(std::shared_ptr<RemoteSession> session, const concert_gpu& info,
                           uint64_t bytes, concert_memory memory)
    : concert_buffer(bytes, session.get(), nullptr),
      session_(std::move(session)),
      info_(info),
      memory_(memory) {}

int RemoteBuffer::Allocate(std::shared_ptr<RemoteSession> session, const concert_gpu& info,
                           uint32_t gpu, uint64_t bytes, concert_buffer** buffer,
                           concert_error* error) {
  concert_allocate_buffer request{};
  request.gpu = gpu;
  request.bytes = bytes;
  concert_buffer_reply reply;
  std::vector<UniqueFd> fds;
  if (int code = session->CallForRoom(CONCERT_CONTROL_ALLOCATE_BUFFER, &request, &reply, -1, &fds,
                                      session->control().NextDeadline(), error)) {
    return code;
  }
  const bool sim = info.backend == CONCERT_BACKEND_SIM;
  const concert_memory memory = sim ? CONCERT_MEMORY_MEMFD : CONCERT_MEMORY_CUDA_VMM;
  std::unique_ptr<RemoteBuffer> made(new RemoteBuffer(std::move(session), info, bytes, memory));
  made->id = reply.buffer;
  made->allocation_bytes_ = reply.allocation_bytes;
  if (fds.size() != 1 || reply.allocation_bytes < bytes) {
    return Fail(error, CONCERT_INTERNAL,
                "the daemon answered an allocation of %llu bytes with %llu bytes and %zu fds",
                static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(reply.allocation_bytes), fds.size());
  }
  made->SetFd(std::move(fds[0]));
  *buffer = made.release();
  return CONCERT_OK;
}

int RemoteBuffer::Import(std::shared_ptr<RemoteSession> session, const concert_gpu& info,
                         const concert_import& import, concert_buffer** buffer,
                         concert_error* error) {
  concert_import_buffer request{};
  if (int code = Describe(import, info, &request, error)) return code;
  const auto memory = static_cast<concert_memory>(import.memory);
  const bool has_fd = memory == CONCERT_MEMORY_CUDA_VMM || memory == CONCERT_MEMORY_MEMFD;
  std::unique_ptr<RemoteBuffer> made(
      new RemoteBuffer(std::move(session), info, import.bytes, memory));
  made->offset_ = request.offset;
  made->allocation_bytes_ = request.allocation_bytes;
  if (memory == CONCERT_MEMORY_CUDA_POINTER) {
    const MutexLock lock(made->mutex_);
    made->address_ = import.pointer;
  }
  if (has_fd) {
    UniqueFd copy(fcntl(import.fd, F_DUPFD_CLOEXEC, 0));
    if (!copy && IsNoFdFree(errno)) return FailNoFdFree("a copy of the memory's", error);
    if (!copy) {
      return Fail(error, CONCERT_INVALID_ARGUMENT, "fd %d: %s", import.fd, strerror(errno));
    }
    made->SetFd(std::move(copy));
  }
  concert_buffer_reply reply;
  RemoteSession& its = *made->session_;
  if (int code =
          its.CallForRoom(CONCERT_CONTROL_IMPORT_BUFFER, &request, &reply, has_fd ? import.fd : -1,
                          nullptr, its.control().NextDeadline(), error)) {
    return code;
  }
  made->id = reply.buffer;
  *buffer = made.release();
  return CONCERT_OK;
}

void RemoteBuffer::SetFd(UniqueFd fd) {
  closed_in_children_ = ClosedInChildren();
  fd_ = std::move(fd);
  closed_in_children_ = ClosedInChildren(fd_.get());
}

RemoteBuffer::~RemoteBuffer() {
  cuda::UnmapVmm(vmm_);
  if (id == 0) return;
  const Deadline deadline = session_->control().NextDeadline();
  session_->batch_programs().ForgetBuffer(id, deadline);
  session_->ReleaseHandle(id, deadline);
}

int RemoteBuffer::MapMemory(concert_error* error) {
  if (sealed_) {
    return Fail(
        error, CONCERT_FAILED_PRECONDITION,
        "a sealed buffer has no memory in this process; copy it to another buffer by an op to "
        "read it");
  }
  switch (memory_) {
    case CONCERT_MEMORY_CUDA_POINTER:
      return CONCERT_OK;  // the address came with it
    case CONCERT_MEMORY_CUDA_IPC:
      return Fail(error, CONCERT_FAILED_PRECONDITION,
                  "a buffer imported by its CUDA IPC handle has its address in the process that "
                  "exported it");
    case CONCERT_MEMORY_MEMFD:
      host_ = Mapping(fd_.get(), allocation_bytes_, PROT_READ | PROT_WRITE);
      if (!host_.valid()) {
        return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "cannot map the buffer: %s",
                    strerror(errno));
      }
      address_ = reinterpret_cast<uintptr_t>(host_.data()) + offset_;
      return CONCERT_OK;
    case CONCERT_MEMORY_CUDA_VMM:
      if (int code = cuda::MapVmm(info_.uuid, fd_.get(), allocation_bytes_, &vmm_, error)) {
        return code;
      }
      address_ = vmm_.address + offset_;
      return CONCERT_OK;
  }
  return Fail(error, CONCERT_INTERNAL, "the buffer has an unknown kind of memory");
}

int RemoteBuffer::Address(void** address, concert_error* error) {
  const MutexLock lock(mutex_);
  if (address_ == 0) {
    if (int code = MapMemory(error)) return code;
  }
  *address = reinterpret_cast<void*>(address_);
  return CONCERT_OK;
}

int RemoteBuffer::Write(uint64_t offset, const void* data, uint64_t bytes, concert_error* error) {
  void* address = nullptr;
  if (int code = Address(&address, error)) return code;
  const uint64_t to = reinterpret_cast<uintptr_t>(address) + offset;
  if (!on_host()) return cuda::CopyToDevice(info_.uuid, to, data, bytes, error);
  std::memcpy(reinterpret_cast<void*>(to), data, bytes);
  return CONCERT_OK;
}

int RemoteBuffer::Read(uint64_t offset, void* data, uint64_t bytes, concert_error* error) {
  void* address = nullptr;
  if (int code = Address(&address, error)) return code;
  const uint64_t from = reinterpret_cast<uintptr_t>(address) + offset;
  if (!on_host()) return cuda::CopyToHost(info_.uuid, data, from, bytes, error);
  std::memcpy(data, reinterpret_cast<const void*>(from), bytes);
  return CONCERT_OK;
}

int RemoteBuffer::Seal(concert_error* error) {
  if (int code = session_->Require(CONCERT_FEATURE_SEALED_BUFFERS, "sealed buffers", error)) {
    return code;
  }
  const MutexLock lock(mutex_);
  const Deadline deadline = session_->control().NextDeadline();
  session_->batch_programs().ForgetBuffer(id, deadline);
  session_->HandOver();  // its handle is given up
  concert_seal_buffer request{};
  request.buffer = id;
  concert_buffer_reply reply;
  if (int code = session_->CallForRoom(CONCERT_CONTROL_SEAL_BUFFER, &request, &reply, -1, nullptr,
                                       deadline, error)) {
    return code;
  }
  id = reply.buffer;
  sealed_ = true;
  // What is mapped here would keep the memory that the daemon has let go of.
  address_ = 0;
  host_ = Mapping();
  cuda::UnmapVmm(std::exchange(vmm_, {}));
  SetFd(UniqueFd());
  return CONCERT_OK;
}

}  // namespace concert::client
