// Copies between where runs have their bindings and where their ops have them, as one launch.
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
  // On the context's stream; nothing if there is nothing to do.
  absl::Status Launch(const LaunchContext& context);

 private:
  const Way way_;
  BindingCopyArgs args_;  // copies: as many as were added
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_PROGRAM_BINDING_COPIES_H_
