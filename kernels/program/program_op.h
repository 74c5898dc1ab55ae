// Program: a run of one. Its bindings are copied into the arena, its ops follow one another, and
// what they wrote to bindings is copied out.
#ifndef CONCERT_KERNELS_PROGRAM_PROGRAM_OP_H_
#define CONCERT_KERNELS_PROGRAM_PROGRAM_OP_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// A program of the session and of the ring's GPU, and for each of its bindings memory of the slot's
// size, at any offset.
Failure AdmitProgram(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

// The arena and the bindings; of what else the ops write, only bounds (AccessMode::kWriteSome).
Accesses AccessesOfProgram(const Op& op);

// One part, or the runs of a pass.
void ComputeProgram(std::span<const Op* const> parts);

namespace cuda {
// In builds with CUDA, by one of the program's engines (program_cuda.h).
absl::Status LaunchProgram(LaunchContext& context, const Op& op);
// Runs of one pass, together (pass_graph.h).
absl::Status LaunchPass(const LaunchContext& context, std::span<const Op* const> runs);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_PROGRAM_OP_H_
