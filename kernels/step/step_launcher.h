// A program as a launch of the step kernel.
#ifndef CONCERT_KERNELS_STEP_STEP_LAUNCHER_H_
#define CONCERT_KERNELS_STEP_STEP_LAUNCHER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/program/program.h"
#include "kernels/program/program_args.h"
#include "kernels/step/direct_bindings.h"
#include "kernels/step/step_plan.h"
#include "kernels/step/step_sms.h"

namespace concert::kernels::cuda {

struct StepArgs;  // kernels/step/step_args.h

// At most, for a list, and for results that its blocks exchange, twice.
inline constexpr uint64_t kMostStepWorkspaceBytes = (4 << 20) + 2 * kStepExchangeBytes;
// What the list of a plan and what its blocks exchange take.
uint64_t StepWorkspaceBytes(const StepPlan& plan);

// Runs of one program follow one another; one thread at a time launches.
class StepLauncher {
 public:
  // Puts the list at `workspace` and whatever blocks exchange behind it, on the context's stream,
  // and waits until it is there. REQUIRES: the kernel exists on this GPU, and the workspace is the
  // program's own, of StepWorkspaceBytes.
  static absl::StatusOr<std::unique_ptr<StepLauncher>> Open(const LaunchContext& context,
                                                            const Program& program,
                                                            const StepPlan& plan,
                                                            Address workspace);

  // A run, on the context's stream, with as many blocks as its GPU's SMs are free for (StepSms).
  // False, and nothing is launched: too many step launches have not ended.
  absl::StatusOr<bool> Launch(const LaunchContext& context, const Op& op);

 private:
  explicit StepLauncher(const Program& program) : direct_(program) {}

  // Has the run use its bindings where they are given. REQUIRES: direct_ allows it.
  void UseDirectly(const ProgramArgs& run, StepArgs& args) const;

  const DirectBindings direct_;
  Address stages_ = 0, stage_bindings_ = 0, waits_ = 0, ended_ = 0;
  Address exchange_ = 0;
  uint64_t exchange_bytes_ = 0;
  Address sums_ = 0;  // of attention's chunks
  uint64_t sums_bytes_ = 0;
  size_t kernel_ = 0;  // of KernelTable::step
  uint32_t stage_count_ = 0, attention_count_ = 0;
  bool copies_out_ = false;  // the last stage: as the first, only where bindings are copied
  uint32_t epoch_ = 0, next_tag_ = 1;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STEP_LAUNCHER_H_
