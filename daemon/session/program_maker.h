// Makes a program of what a client recorded.
#ifndef CONCERT_DAEMON_SESSION_PROGRAM_MAKER_H_
#define CONCERT_DAEMON_SESSION_PROGRAM_MAKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/session/replicas.h"
#include "kernels/program/program.h"
#include "proto/ring/control_abi.h"

namespace concert::daemon {

// With all that takes the longer the more ops it has, so that the control thread needs none of
// that.
struct MadeProgram {
  std::shared_ptr<kernels::Program> program;
  Allocation arena;                 // its own; to be given to FreeOwn
  kernels::ProgramSummary summary;  // but for its handle
  uint32_t batch_flags = 0;         // of one that is a batch, concert_program_reply::flags
  std::optional<Replicas::Likeness> for_replicas;  // of one that may have some
};

inline bool IsOfBatch(const concert_create_program& request) {
  return (request.flags & CONCERT_PROGRAM_OF_BATCH) != 0;
}

// Reads the request's memfd and checks all that it says, takes memory for the arena, for which the
// account is charged as by AllocateOwn, and prepares the device. `buffers` are the session's, which
// nobody changes meanwhile. An error leaves nothing; INVALID_ARGUMENT names the op,
// RESOURCE_EXHAUSTED what there is too little of. Takes as long as Device::Prepare, on the same
// thread. REQUIRES: the request's counts are within the protocol's bounds.
absl::StatusOr<MadeProgram> MakeProgram(Device& device, Account& account,
                                        const concert_create_program& request, int fd,
                                        std::span<const kernels::BufferRange> buffers);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_PROGRAM_MAKER_H_
