// A run with addresses.
#ifndef CONCERT_KERNELS_PROGRAM_PROGRAM_ARGS_H_
#define CONCERT_KERNELS_PROGRAM_PROGRAM_ARGS_H_

#include <array>

#include "kernels/gemm/gemm_args.h"
#include "proto/ring/ring_abi.h"

namespace concert::kernels {

struct Program;  // kernels/program/program.h

struct ProgramArgs {
  const Program* program;  // its session keeps it until no run of it is left
  std::array<Address, CONCERT_MAX_BINDINGS> bindings;  // as many as the program has
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_PROGRAM_ARGS_H_
