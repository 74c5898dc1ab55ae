#include "tests/gpu/client_process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/cuda_api/driver.h"

namespace concert::test {
namespace {

using kernels::cuda::Driver;

void Send(int socket, const ClientMessage& message, int fd) {
  iovec part = {const_cast<ClientMessage*>(&message), sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  if (sendmsg(socket, &header, MSG_NOSIGNAL) != sizeof(message)) std::abort();
}

bool Receive(int socket, ClientMessage& message, int& fd) {
  iovec part = {&message, sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  fd = -1;
  if (recvmsg(socket, &header, 0) != sizeof(message)) return false;
  if (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr) {
    std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
  }
  return true;
}

// What runs in the child.
class Client {
 public:
  ClientMessage Handle(const ClientMessage& request, int fd, int& reply_fd) {
    ClientMessage reply = request;
    if (!driver_.has_value()) reply.result = Start();
    if (reply.result != CUDA_SUCCESS) return reply;
    switch (request.command) {
      case ClientCommand::kExportIpc:
        reply.result = ExportIpc(reply);
        break;
      case ClientCommand::kExportVmm:
        reply.result = ExportVmm(request, reply_fd);
        break;
      case ClientCommand::kImportPool:
        reply.result = ImportPool(reply, fd);
        break;
      case ClientCommand::kReadExported:
        reply.result = ReadByte(exported_, reply.value);
        break;
      case ClientCommand::kWaitTimeline:
        WaitTimeline(reply, fd);
        break;
      case ClientCommand::kFinishWait:
        reply.result = FinishWait();
        break;
    }
    return reply;
  }

 private:
  int Start() {
    absl::StatusOr<Driver> driver = Driver::Load();
    if (!driver.ok()) return CUDA_ERROR_NO_DEVICE;
    driver_ = *std::move(driver);
    CUcontext context;
    if (CUresult result = driver_->cuDevicePrimaryCtxRetain(&context, 0); result != CUDA_SUCCESS)
      return result;
    if (CUresult result = driver_->cuCtxSetCurrent(context); result != CUDA_SUCCESS) return result;
    return driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
  }

  int Fill(CUdeviceptr address, uint64_t bytes, uint64_t value) {
    driver_->cuMemsetD8Async(address, static_cast<unsigned char>(value), bytes, stream_);
    return driver_->cuStreamSynchronize(stream_);
  }
  int ReadByte(CUdeviceptr address, uint64_t& value) {
    uint8_t byte = 0;
    driver_->cuMemcpyDtoHAsync(&byte, address, 1, stream_);
    const int result = driver_->cuStreamSynchronize(stream_);
    value = byte;
    return result;
  }

  int ExportIpc(ClientMessage& reply) {
    if (CUresult result = driver_->cuMemAlloc(&exported_, reply.bytes); result != CUDA_SUCCESS)
      return result;
    CUipcMemHandle handle;
    if (CUresult result = driver_->cuIpcGetMemHandle(&handle, exported_); result != CUDA_SUCCESS)
      return result;
    std::memcpy(reply.ipc_handle, &handle, sizeof(handle));
    return Fill(exported_, reply.bytes, reply.value);
  }

  int Map(CUmemGenericAllocationHandle handle, uint64_t bytes, CUdeviceptr& address) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (CUresult result = driver_->cuMemAddressReserve(&address, bytes, 0, 0, 0);
        result != CUDA_SUCCESS)
      return result;
    if (CUresult result = driver_->cuMemMap(address, bytes, 0, handle, 0); result != CUDA_SUCCESS)
      return result;
    return driver_->cuMemSetAccess(address, bytes, &access, 1);
  }

  int ExportVmm(const ClientMessage& request, int& reply_fd) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemGenericAllocationHandle handle;
    if (CUresult result = driver_->cuMemCreate(&handle, request.bytes, &properties, 0);
        result != CUDA_SUCCESS) {
      return result;
    }
    if (int result = Map(handle, request.bytes, exported_); result != CUDA_SUCCESS) return result;
    if (int result = Fill(exported_, request.bytes, request.value); result != CUDA_SUCCESS)
      return result;
    return driver_->cuMemExportToShareableHandle(&reply_fd, handle,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  }

  int ImportPool(ClientMessage& reply, int fd) {
    CUmemGenericAllocationHandle handle;
    CUresult result = driver_->cuMemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS) return result;
    CUdeviceptr address = 0;
    if (int mapped = Map(handle, reply.bytes, address); mapped != CUDA_SUCCESS) return mapped;
    const uint64_t fill = reply.value;
    if (int read = ReadByte(address, reply.value); read != CUDA_SUCCESS) return read;
    return Fill(address, reply.bytes, fill);
  }

  void WaitTimeline(ClientMessage& reply, int fd) {
    driver_->cuDeviceGetAttribute(&reply.read_only_supported,
                                  CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0);
    void* page = mmap(nullptr, reply.bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
      reply.result = CUDA_ERROR_MAP_FAILED;
      return;
    }
    reply.plain_register_result =
        driver_->cuMemHostRegister(page, reply.bytes, CU_MEMHOSTREGISTER_DEVICEMAP);
    if (reply.plain_register_result == CUDA_SUCCESS) driver_->cuMemHostUnregister(page);
    reply.result = driver_->cuMemHostRegister(
        page, reply.bytes, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY);
    if (reply.result != CUDA_SUCCESS) return;
    CUdeviceptr address = 0;
    reply.result = driver_->cuMemHostGetDevicePointer(&address, page, 0);
    if (reply.result != CUDA_SUCCESS) return;
    reply.wait_result =
        driver_->cuStreamWaitValue64(stream_, address, reply.value, CU_STREAM_WAIT_VALUE_GEQ);
  }

  int FinishWait() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    int result = CUDA_ERROR_NOT_READY;
    while (result == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < deadline) {
      result = driver_->cuStreamQuery(stream_);
    }
    return result;
  }

  std::optional<Driver> driver_;
  CUstream stream_ = nullptr;
  CUdeviceptr exported_ = 0;
};

[[noreturn]] void RunClient(int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Client client;
  ClientMessage request;
  int fd = -1;
  while (Receive(socket, request, fd)) {
    int reply_fd = -1;
    const ClientMessage reply = client.Handle(request, fd, reply_fd);
    Send(socket, reply, reply_fd);
    if (fd >= 0) close(fd);
    if (reply_fd >= 0) close(reply_fd);
  }
  _exit(0);
}

}  // namespace

ClientProcess::ClientProcess() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) std::abort();
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) {
    close(sockets[0]);
    RunClient(sockets[1]);
  }
  close(sockets[1]);
  socket_ = sockets[0];
}

ClientProcess::~ClientProcess() {
  close(socket_);
  waitpid(pid_, nullptr, 0);
}

ClientMessage ClientProcess::Call(const ClientMessage& message, int fd, int* reply_fd) {
  Send(socket_, message, fd);
  ClientMessage reply;
  int received = -1;
  if (!Receive(socket_, reply, received)) reply.result = CUDA_ERROR_UNKNOWN;
  if (reply_fd != nullptr) {
    *reply_fd = received;
  } else if (received >= 0) {
    close(received);
  }
  return reply;
}

}  // namespace concert::test
