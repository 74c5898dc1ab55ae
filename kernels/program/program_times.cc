#include "kernels/program/program_times.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/step/step_plan.h"

namespace concert::kernels {
namespace {

using policies::DeviceModel;
using policies::RunCost;
using policies::StageWork;
using policies::Work;

constexpr char kOthers[] = "others";
constexpr uint64_t kCopiedByBlock = 16 * 1024;  // as the kernel that copies bindings does

// A node that copies bindings in or out. Nothing if there are none.
void AddCopies(const Program& program, bool out, std::vector<Work>& kernels) {
  Work copies;
  for (const Program::Binding& binding : program.bindings) {
    if (out && !binding.written) continue;
    copies.hbm_bytes += 2 * binding.bytes;
  }
  if (copies.hbm_bytes == 0) return;
  copies.m = static_cast<uint32_t>(std::min<uint64_t>(copies.hbm_bytes / kCopiedByBlock + 1, 1024));
  copies.n = 1;
  kernels.push_back(copies);
}

std::vector<Work> KernelsOf(const Program& program, std::span<const GraphNode> nodes) {
  std::vector<Work> kernels;
  AddCopies(program, /*out=*/false, kernels);
  for (const GraphNode& node : nodes) {
    if (node.IsLaunched()) kernels.push_back(node.op.work);
  }
  AddCopies(program, /*out=*/true, kernels);
  return kernels;
}

// What so many members have each by itself is done side by side, mostly in one launch.
std::vector<Work> KernelsOf(const Pass& pass, std::span<const GraphNode> nodes, uint32_t members) {
  std::vector<Work> kernels;
  AddCopies(pass.program, /*out=*/false, kernels);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].IsLaunched() || pass.owners[i] > 0) continue;
    Work work = nodes[i].op.work;
    if (pass.owners[i] == 0) {
      work.m *= members;
      work.flops *= members;
      work.hbm_bytes *= members;
    }
    kernels.push_back(work);
  }
  AddCopies(pass.program, /*out=*/true, kernels);
  return kernels;
}

// Adds one to the parts, which are few: a model's layers are alike.
void AddPart(std::string_view what, double us, std::vector<ProgramPart>& parts) {
  const auto part = std::find_if(parts.begin(), parts.end(), [&](const ProgramPart& one) {
    return one.what == what && one.predicted_us == us;
  });
  if (part != parts.end()) {
    ++part->count;
  } else if (parts.size() < kMaxProgramParts) {
    parts.push_back({.what = std::string(what), .count = 1, .predicted_us = us});
  } else {
    ProgramPart& others = parts.back();
    if (others.what != kOthers)
      others = {.what = kOthers, .count = others.count, .predicted_us = others.predicted_us};
    const double sum_us = others.predicted_us * others.count + us;
    others.predicted_us = sum_us / ++others.count;
  }
}

void AddPart(std::string_view what, double us, EngineTimes& times) {
  times.predicted_us += us;
  AddPart(what, us, times.parts);
}

EngineTimes StepTimes(const DeviceModel& device, const Program& program) {
  EngineTimes times{.engine = ProgramEngine::kStep};
  for (const Program::Stage& stage : program.stages)
    AddPart(stage.what, policies::StageUs(device, stage.work), times);
  return times;
}

EngineTimes GraphTimes(const DeviceModel& device, const Program& program) {
  EngineTimes times{.engine = ProgramEngine::kGraph};
  const auto add = [&](std::string_view what, const Work& kernel) {
    AddPart(what, policies::GraphCost(device, {&kernel, 1}).us, times);
  };
  const auto add_copies = [&](bool out) {
    std::vector<Work> copies;
    AddCopies(program, out, copies);
    for (const Work& kernel : copies) add("bindings", kernel);
  };
  add_copies(/*out=*/false);
  for (const GraphNode& node : GraphNodesOf(program)) {
    if (node.IsLaunched()) add(KindsOf(program, node.ops), node.op.work);
  }
  add_copies(/*out=*/true);
  return times;
}

uint32_t LeastTogether(const DeviceModel& device, const Program& member, const Pass& pass) {
  if (member.stages.empty()) return 2;
  const std::vector<StageWork> stages = StageWorksOf(member);
  uint32_t least = pass.member_count + 1;
  while (least > 2 && pass.run_costs[least - 2].us <=
                          policies::StepTogetherUs(device, stages, static_cast<int>(least - 1))) {
    --least;
  }
  return least;
}

}  // namespace

RunCost GraphCostOf(const DeviceModel& device, const Program& program,
                    std::span<const GraphNode> nodes, const policies::ProgramCostConstants& costs) {
  return policies::GraphCost(device, KernelsOf(program, nodes), costs);
}

RunCost GraphCostOf(const DeviceModel& device, const Pass& pass, std::span<const GraphNode> nodes,
                    uint32_t members, const policies::ProgramCostConstants& costs) {
  return policies::GraphCost(device, KernelsOf(pass, nodes, members), costs);
}

std::vector<EngineTimes> TimesOf(const DeviceModel& device, const Program& program) {
  std::vector<EngineTimes> engines;
  if (!program.stages.empty()) engines.push_back(StepTimes(device, program));
  engines.push_back(GraphTimes(device, program));
  return engines;
}

std::vector<StageWork> StageWorksOf(const Program& program) {
  std::vector<StageWork> stages;
  for (const Program::Stage& stage : program.stages) stages.push_back(stage.work);
  return stages;
}

void SetRunTime(const DeviceModel& device, Program& program) {
  SetRunCost(program.stages.empty() ? GraphCostOf(device, program, GraphNodesOf(program))
                                    : policies::StepCost(device, StageWorksOf(program)),
             program.work);
}

void SetRunTimes(const DeviceModel& device, const Program& member, Pass& pass) {
  const std::vector<GraphNode> nodes = GraphNodesOf(pass.program, pass.owners);
  for (uint32_t members = 1; members <= pass.member_count; ++members)
    pass.run_costs[members - 1] = GraphCostOf(device, pass, nodes, members);
  pass.least_together = LeastTogether(device, member, pass);
}

}  // namespace concert::kernels
