// What runs of a program take alone, by engine, asked of the cost model (ADR 24) when the program
// is registered. Pure; 10,000 ops take a millisecond.
#ifndef CONCERT_KERNELS_PROGRAM_PROGRAM_TIMES_H_
#define CONCERT_KERNELS_PROGRAM_PROGRAM_TIMES_H_

#include <span>
#include <vector>

#include "kernels/program/graph_nodes.h"
#include "kernels/program/pass.h"
#include "kernels/program/program.h"
#include "policies/seam/work.h"

namespace concert::kernels {

// Those that the program has, the one that a run has which is alone first: the step kernel where it
// can. REQUIRES: the device has prepared the program.
std::vector<EngineTimes> TimesOf(const policies::DeviceModel& device, const Program& program);

// A run as a graph of these nodes, which are the program's; a run of so many members of a pass.
policies::RunCost GraphCostOf(const policies::DeviceModel& device, const Program& program,
                              std::span<const GraphNode> nodes,
                              const policies::ProgramCostConstants& costs = {});
policies::RunCost GraphCostOf(const policies::DeviceModel& device, const Pass& pass,
                              std::span<const GraphNode> nodes, uint32_t members,
                              const policies::ProgramCostConstants& costs = {});

// A program's stages as the cost model has them.
std::vector<policies::StageWork> StageWorksOf(const Program& program);

// Gives runs that time (Work::run_us). REQUIRES: as above, and there are no runs yet.
void SetRunTime(const policies::DeviceModel& device, Program& program);
// The same for any number of runs in a pass (Pass::run_costs), which is a graph. And of how many
// members runs take no longer in it than beside each other by the step kernel, which has few SMs
// for each then, but no launch for each op (Pass::least_together; more than there are: of none).
// `member`: any of them.
void SetRunTimes(const policies::DeviceModel& device, const Program& member, Pass& pass);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_PROGRAM_TIMES_H_
