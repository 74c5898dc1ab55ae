// How a pass runs on CUDA: as one graph, in which what is done for each member is one launch for
// all of them, or lies side by side.
#ifndef CONCERT_KERNELS_PROGRAM_PASS_GRAPH_H_
#define CONCERT_KERNELS_PROGRAM_PASS_GRAPH_H_

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/program/pass.h"

namespace concert::kernels::cuda {

class PassGraph final : public ProgramExecutable {
 public:
  // As ProgramGraph has it.
  static uint64_t WorkspaceBytes(const LaunchContext& context, const Pass& pass);
  // Captures what ops launch, on the context's stream and others beside it, where nothing runs,
  // with the context's workspace, which is the pass's alone, of WorkspaceBytes. An error names the
  // op.
  static absl::StatusOr<std::unique_ptr<PassGraph>> Capture(LaunchContext& context,
                                                            const Pass& pass);
  // REQUIRES: nothing launched it that has not ended.
  ~PassGraph() override;

  // Enqueues runs of it with their bindings, on the context's stream, all of them or none. Nothing
  // is done for members that have none. REQUIRES: runs in it that were launched before are ahead on
  // the stream: they have the same arena.
  absl::Status Launch(const LaunchContext& context, std::span<const Op* const> runs);

 private:
  PassGraph(const Driver& driver, int gpu) : driver_(driver), gpu_(gpu) {}
  // Has exactly the nodes of these members run, bit i being member i, and those of several.
  absl::Status Enable(uint32_t members);

  const Driver& driver_;
  const int gpu_;
  CUgraph graph_ = nullptr;  // whose nodes name those of the executable
  CUgraphExec executable_ = nullptr;
  CUgraphNode in_ = nullptr, out_ = nullptr;                     // copy bindings
  std::array<std::vector<CUgraphNode>, kMaxPassMembers> nodes_;  // by member, its own
  Address there_ = 0;  // where launches for several members see who takes part
  uint32_t enabled_ = 0;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_PROGRAM_PASS_GRAPH_H_
