// A run with addresses.
#ifndef CONCERT_KERNELS_PROGRAM_PROGRAM_ARGS_H_
#define CONCERT_KERNELS_PROGRAM_PROGRAM_ARGS_H_

#include <array>

#include "kernels/gemm/gemm_args.h"
#include "proto/ring/ring_abi.h"

namespace concert::kernels {

struct Pass;     // kernels/program/pass.h
struct Program;  // kernels/program/program.h

struct ProgramArgs {
  const Program* program;  // its session keeps it until no run of it is left
  std::array<Address, CONCERT_MAX_BINDINGS> bindings;  // as many as the program has
  // That the run is launched in with others, and as which of its members; null: it runs alone.
  const Pass* pass;
  uint32_t member;
};

// What is copied before or behind a run's ops.
struct Transfer {
  Address to, from;
  uint64_t bytes;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_PROGRAM_ARGS_H_
