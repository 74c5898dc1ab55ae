// What a client recorded: a copy, which nobody changes meanwhile.
#ifndef CONCERT_DAEMON_SESSION_PROGRAM_TEXT_H_
#define CONCERT_DAEMON_SESSION_PROGRAM_TEXT_H_

#include <vector>

#include "kernels/program/compile.h"
#include "proto/ring/control_abi.h"

namespace concert::daemon {

struct ProgramText {
  int gpu = 0;
  std::vector<kernels::BufferRange> buffers;  // of the session, as they are at registration
  std::vector<concert_program_slot> slots;
  std::vector<concert_descriptor> ops;

  // Valid as long as this.
  kernels::ProgramSource source() const {
    return {.gpu = gpu, .buffers = buffers, .slots = slots, .ops = ops};
  }
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_PROGRAM_TEXT_H_
