// A program on CUDA, by two engines: the step kernel, one launch that follows a list, where there
// is a list, and a graph of what its ops launch by themselves, below which nothing falls.
#ifndef CONCERT_KERNELS_PROGRAM_PROGRAM_CUDA_H_
#define CONCERT_KERNELS_PROGRAM_PROGRAM_CUDA_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/program/program.h"
#include "kernels/program/program_graph.h"
#include "kernels/step/step_launcher.h"

namespace concert::kernels::cuda {

class CudaProgram final : public ProgramExecutable {
 public:
  // What Make needs as Program::workspace, of which the graph's comes first. As
  // ProgramGraph::WorkspaceBytes.
  static uint64_t WorkspaceBytes(const LaunchContext& context, const Program& program);
  // On the context's stream, where nothing runs. An error names the op that cannot run at all; that
  // the step kernel cannot run it is none.
  static absl::StatusOr<std::unique_ptr<CudaProgram>> Make(const LaunchContext& context,
                                                           Program& program);

  // Enqueues a run on the context's stream.
  absl::Status Launch(const LaunchContext& context, const Op& run);

 private:
  std::unique_ptr<ProgramGraph> graph_;
  std::unique_ptr<StepLauncher> step_;  // null: there is no list
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_PROGRAM_PROGRAM_CUDA_H_
