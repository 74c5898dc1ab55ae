// A second process with a CUDA context of its own, as a client of the daemon has: makes and imports
// memory, waits on timelines. Start it before this process touches CUDA.
#ifndef CONCERT_TESTS_GPU_CLIENT_PROCESS_H_
#define CONCERT_TESTS_GPU_CLIENT_PROCESS_H_

#include <sys/types.h>

#include <cstdint>

namespace concert::test {

enum class ClientCommand : uint32_t {
  kExportIpc,     // cuMemAlloc `bytes`, filled with `value`; replies with ipc_handle
  kExportVmm,     // cuMemCreate `bytes`, filled with `value`; replies with an fd
  kImportPool,    // imports the fd, replies with its first byte, then fills it with `value`
  kReadExported,  // replies with the first byte of what it exported last
  kWaitTimeline,  // maps the fd read-only, registers it, lets a stream wait until its first word is
                  // >= `value`
  kFinishWait,    // replies whether that stream has passed, waiting at most 5 s
};

struct ClientMessage {
  ClientCommand command = ClientCommand::kExportIpc;
  int32_t result = 0;  // CUresult; of kWaitTimeline: of cuMemHostRegister
  uint64_t bytes = 0;
  uint64_t value = 0;
  int32_t read_only_supported = 0;  // CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
  int32_t plain_register_result =
      0;                    // cuMemHostRegister of the read-only mapping without READ_ONLY
  int32_t wait_result = 0;  // cuStreamWaitValue64
  uint8_t ipc_handle[64] = {};
};

class ClientProcess {
 public:
  ClientProcess();
  ~ClientProcess();
  // Sends `message` and, unless it is -1, `fd`; returns the reply. An fd of the reply goes to
  // `reply_fd`.
  ClientMessage Call(const ClientMessage& message, int fd = -1, int* reply_fd = nullptr);

 private:
  int socket_ = -1;
  pid_t pid_ = -1;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_CLIENT_PROCESS_H_
