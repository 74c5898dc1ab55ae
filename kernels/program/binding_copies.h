// Copies between where runs have their bindings and where their ops have them, as one launch.
#ifndef CONCERT_KERNELS_PROGRAM_BINDING_COPIES_H_
#define CONCERT_KERNELS_PROGRAM_BINDING_COPIES_H_

#include "absl/status/status.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/program/binding_copy_args.h"
#include "kernels/program/program.h"
#include "kernels/program/program_args.h"

namespace concert::kernels::cuda {

class BindingCopies {
 public:
  enum class Way { kIn, kOut };

  explicit BindingCopies(Way way) : way_(way) {
    args_.there = nullptr;
    args_.count = 0;
  }

  // A run's: of the bindings that go this way. `staged`: where the run has binding i. At most
  // kMaxBindingCopies in all.
  template <typename Staged>
  void Add(const ProgramArgs& run, const Staged& staged) {
    for (size_t i = 0; i < run.program->bindings.size(); ++i) {
      const Program::Binding& binding = run.program->bindings[i];
      if (way_ == Way::kOut && !binding.written) continue;
      const Address given = run.bindings[i], in_arena = staged(i);
      args_.copies[args_.count++] = {.to = way_ == Way::kIn ? in_arena : given,
                                     .from = way_ == Way::kIn ? given : in_arena,
                                     .bytes = binding.bytes};
    }
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
