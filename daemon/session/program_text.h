// What a client recorded: a copy, which nobody changes meanwhile.
#ifndef CONCERT_DAEMON_SESSION_PROGRAM_TEXT_H_
#define CONCERT_DAEMON_SESSION_PROGRAM_TEXT_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/program/compile.h"
#include "proto/ring/control_abi.h"

namespace concert::daemon {

struct ProgramText {
  int gpu = 0;
  std::vector<concert_program_slot> slots;
  std::vector<concert_descriptor> ops;
  // Those of the session that ops use, by index, as they were at registration. Not the session's
  // table, which may be far larger than all else here.
  std::vector<std::pair<uint32_t, kernels::BufferRange>> buffers;

  // `table`: by index, at least those that ops use. Valid as long as both.
  kernels::ProgramSource source(std::span<const kernels::BufferRange> table) const {
    return {.gpu = gpu, .buffers = table, .slots = slots, .ops = ops};
  }
  // A table for `source`, with nothing in it but `buffers`.
  std::vector<kernels::BufferRange> Table() const {
    std::vector<kernels::BufferRange> table(buffers.empty() ? 0 : buffers.back().first + 1);
    for (const auto& [index, range] : buffers) table[index] = range;
    return table;
  }
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_PROGRAM_TEXT_H_
