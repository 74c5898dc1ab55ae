// What a run of a program takes that has the GPU to itself, by the engine that runs it (ADR 29): a
// CUDA graph, or the step kernel's stages. Pure functions of the device model and the work; all
// times in microseconds. Called once for a program, when it is registered.
#ifndef CONCERT_POLICIES_COST_PROGRAM_COST_H_
#define CONCERT_POLICIES_COST_PROGRAM_COST_H_

#include <cstdint>
#include <span>

#include "policies/seam/work.h"

namespace concert::policies {

// Fitted to what one H100 took for two programs, 12 layers of hidden 1024 and of 2048 (8 rows,
// contexts of 512): 630 and 1008 us as graphs, 264 and 623 by the step kernel
// (docs/benchmarks/README.md "Whole steps", ADR 29). How far off they are of others says
// docs/benchmarks/programs-model.md; tests/bench/report_programs.py --fit fits them again.
struct ProgramCostConstants {
  // From the end of a kernel of a graph to the start of the next, beyond what CostOf has for each.
  double graph_link_us = 0.72;
  // Of a pass of a stage: until a block has what the others have made, and from its sums until
  // those can be seen. Measured: 1.5 and 0.4, of which some is StageWork::read_by_all_bytes.
  double step_pass_us = 1.10;
  // Of hbm_bytes_per_s, what stages reach, whose loads run ahead of them: all. Eight clients of
  // hidden 2048 moved 2.95 TB/s on an H100, whose memory is taken for 2.88.
  double step_hbm_share = 1.0;
};

// A stage of the step kernel, as its blocks share it.
struct StageWork {
  double flops = 0;
  double hbm_bytes = 0;          // from memory and back, by all blocks together
  double read_by_all_bytes = 0;  // by each block, from the L2 cache, once a pass
  uint32_t items = 0;            // that blocks share; 0: it can be shared evenly by any number
  uint32_t items_a_pass = 0;     // that a block does at once; 0: all that it has
};

// What a launch of the step kernel has of the GPU.
struct StepPlace {
  int sm_count = 0;            // 0: all
  double hbm_bytes_per_s = 0;  // 0: step_hbm_share of the memory's
};

// Passes, one behind the other, of a block that has most of the stage's items.
int PassesOf(const DeviceModel& device, const StageWork& stage, const StepPlace& place = {});

double StageUs(const DeviceModel& device, const StageWork& stage, const StepPlace& place = {},
               const ProgramCostConstants& costs = {});

struct RunCost {
  double us = 0;
  double sms = 0;  // that it holds on the average
};

// What CostOf says of a run's work from then on.
void SetRunCost(const RunCost& run, Work& work);

// A run of one of `clients` that are alike, in a closed loop. A run is time in which memory is
// waited for, and time in which it waits for itself (`waiting_us`), from stage to stage or kernel
// to kernel. The former is longer by as many others as are at it, each as often as this one (mean
// value analysis by Bard's and Schweitzer's approximation: what one sees of the others is their
// mean). `memory_us`: of all of its bytes, at memory's pace.
double TogetherUs(double alone_us, double waiting_us, double memory_us, int clients);

// A graph of these kernels, each of which depends on the one before it.
RunCost GraphCost(const DeviceModel& device, std::span<const Work> kernels,
                  const ProgramCostConstants& costs = {});
// One launch that goes through all stages.
RunCost StepCost(const DeviceModel& device, std::span<const StageWork> stages,
                 const StepPlace& place = {}, const ProgramCostConstants& costs = {});
// The same of one of `clients`, each with a share of the SMs (TogetherUs).
double StepTogetherUs(const DeviceModel& device, std::span<const StageWork> stages, int clients,
                      const ProgramCostConstants& costs = {});

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_PROGRAM_COST_H_
