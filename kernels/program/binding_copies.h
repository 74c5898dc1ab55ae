// Copies between where runs have their bindings and where their ops have them, as one node of their
// graph.
#ifndef CONCERT_KERNELS_PROGRAM_BINDING_COPIES_H_
#define CONCERT_KERNELS_PROGRAM_BINDING_COPIES_H_

#include "absl/status/status.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/program/binding_copy_args.h"
#include "kernels/program/transfers.h"

namespace concert::kernels::cuda {

class BindingCopies {
 public:
  explicit BindingCopies(Way way) : way_(way) {
    args_.there = nullptr;
    args_.count = 0;
  }

  // A run's: of the bindings that go this way. At most kMaxBindingCopies in all.
  void Add(const ProgramArgs& run) {
    ForEachTransfer(run, way_,
                    [&](const Transfer& transfer) { args_.copies[args_.count++] = transfer; });
  }
  // Says at `there`, of the GPU's memory, who takes part, too.
  void Note(uint32_t members, Address there) {
    args_.there = reinterpret_cast<uint32_t*>(there);
    args_.members = members;
  }

  // `node` becomes one that copies nothing yet, behind what is captured on the context's stream. It
  // heeds LaunchContext::begins_early, and lets the next launch begin early.
  static absl::Status Capture(const LaunchContext& context, CUgraphNode& node);
  // That is what the node of an executable does from its next launch on.
  absl::Status Set(const LaunchContext& context, CUgraphExec executable, CUgraphNode node);

 private:
  const Way way_;
  BindingCopyArgs args_;  // copies: as many as were added
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_PROGRAM_BINDING_COPIES_H_
