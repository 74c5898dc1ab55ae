#include "policies/cost/program_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "policies/cost/cost_model.h"

namespace concert::policies {
namespace {

int SmsOf(const DeviceModel& device, const StepPlace& place) {
  return place.sm_count > 0 ? std::min(place.sm_count, device.sm_count) : device.sm_count;
}

double BytesPerSecond(const DeviceModel& device, const StepPlace& place,
                      const ProgramCostConstants& costs) {
  return place.hbm_bytes_per_s > 0 ? place.hbm_bytes_per_s
                                   : device.hbm_bytes_per_s * costs.step_hbm_share;
}

// Of a block that has most of them; of a stage without items, its share is one.
uint32_t MostItems(const StageWork& stage, int sms) {
  const auto blocks = static_cast<uint32_t>(sms);
  return stage.items == 0 ? 1 : (stage.items + blocks - 1) / blocks;
}

// The part of the stage that a block has which has most.
double LargestShare(const StageWork& stage, int sms) {
  return stage.items == 0 ? 1.0 / sms : static_cast<double>(MostItems(stage, sms)) / stage.items;
}

}  // namespace

int PassesOf(const DeviceModel& device, const StageWork& stage, const StepPlace& place) {
  if (stage.items_a_pass == 0) return 1;
  const uint32_t most = MostItems(stage, SmsOf(device, place));
  return static_cast<int>((most + stage.items_a_pass - 1) / stage.items_a_pass);
}

double StageUs(const DeviceModel& device, const StageWork& stage, const StepPlace& place,
               const ProgramCostConstants& costs) {
  const int sms = SmsOf(device, place);
  const double share = LargestShare(stage, sms), sm_bytes = device.costs.sm_bytes_per_s;
  const double work_s = std::max({stage.hbm_bytes / BytesPerSecond(device, place, costs),
                                  stage.hbm_bytes * share / sm_bytes,
                                  stage.flops * share * device.sm_count / device.tensor_flops});
  const double pass_us = costs.step_pass_us + 1e6 * stage.read_by_all_bytes / sm_bytes;
  return PassesOf(device, stage, place) * pass_us + 1e6 * work_s;
}

void SetRunCost(const RunCost& run, Work& work) {
  work.run_us = static_cast<float>(run.us);
  work.m = static_cast<uint32_t>(std::max(1.0, std::ceil(run.sms)));
}

RunCost GraphCost(const DeviceModel& device, std::span<const Work> kernels,
                  const ProgramCostConstants& costs) {
  RunCost run;
  double sm_us = 0;
  for (const Work& kernel : kernels) {
    const OpCost cost = CostOf(device, kernel);
    run.us += cost.solo_us + costs.graph_link_us;
    sm_us += cost.sm_share * device.sm_count * cost.busy_us;
  }
  run.sms = run.us > 0 ? sm_us / run.us : 0;
  return run;
}

RunCost StepCost(const DeviceModel& device, std::span<const StageWork> stages,
                 const StepPlace& place, const ProgramCostConstants& costs) {
  RunCost run{.sms = static_cast<double>(SmsOf(device, place))};
  for (const StageWork& stage : stages) run.us += StageUs(device, stage, place, costs);
  return run;
}

double TogetherUs(double alone_us, double waiting_us, double memory_us, int clients) {
  double us = alone_us;
  for (int i = 0; i < 200; ++i) {
    const double others = (clients - 1) * (us - waiting_us) / us;
    us = std::max(alone_us, waiting_us + memory_us * (1 + others));
  }
  return us;
}

double StepTogetherUs(const DeviceModel& device, std::span<const StageWork> stages, int clients,
                      const ProgramCostConstants& costs) {
  const StepPlace place{.sm_count = device.sm_count / clients, .hbm_bytes_per_s = 0};
  std::vector<StageWork> without_memory(stages.begin(), stages.end());
  double bytes = 0;
  for (StageWork& stage : without_memory) bytes += std::exchange(stage.hbm_bytes, 0);
  const double memory_us = 1e6 * bytes / (device.hbm_bytes_per_s * costs.step_hbm_share);
  return TogetherUs(StepCost(device, stages, place, costs).us,
                    StepCost(device, without_memory, place, costs).us, memory_us, clients);
}

}  // namespace concert::policies
