// Makes a program of what a client recorded.
#ifndef CONCERT_DAEMON_SESSION_PROGRAM_MAKER_H_
#define CONCERT_DAEMON_SESSION_PROGRAM_MAKER_H_

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/session/program_text.h"
#include "kernels/program/program.h"
#include "proto/ring/control_abi.h"

namespace concert::daemon {

struct MadeProgram {
  std::shared_ptr<const ProgramText> text;  // that it was made of
  std::shared_ptr<kernels::Program> program;
  Allocation arena;  // its own; to be given to FreeOwn
};

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
