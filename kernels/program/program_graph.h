// How a program runs on CUDA: all of its launches as one graph.
#ifndef CONCERT_KERNELS_PROGRAM_PROGRAM_GRAPH_H_
#define CONCERT_KERNELS_PROGRAM_PROGRAM_GRAPH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/program/program.h"
#include "kernels/program/program_args.h"

namespace concert::kernels::cuda {

class ProgramGraph {
 public:
  // Of the context's workspace that Capture needs. Depends on how the program's operands lie to
  // each other, but not on where they all lie.
  static uint64_t WorkspaceBytes(const LaunchContext& context, const Program& program);
  // Captures what each op launches by itself, on the context's stream, where nothing runs, with the
  // context's workspace, which is the program's alone. An error names the op.
  static absl::StatusOr<std::unique_ptr<ProgramGraph>> Capture(LaunchContext& context,
                                                               const Program& program);
  // REQUIRES: nothing launched it that has not ended.
  ~ProgramGraph();

  // Enqueues it with a run's bindings, all of it or nothing. CUDA lets launches of one graph follow
  // one another, whatever their streams.
  absl::Status Launch(const LaunchContext& context, const ProgramArgs& run) const;

 private:
  ProgramGraph(const Driver& driver, int gpu) : driver_(driver), gpu_(gpu) {}
  // What is captured.
  absl::Status LaunchAll(LaunchContext& context, const Program& program);

  const Driver& driver_;
  const int gpu_;
  CUgraph graph_ = nullptr;  // whose nodes name those of the executable
  CUgraphExec executable_ = nullptr;
  CUgraphNode in_ = nullptr, out_ = nullptr;  // copy bindings; null: there is nothing to copy
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_PROGRAM_PROGRAM_GRAPH_H_
