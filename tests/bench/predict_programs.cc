// Predicts what the steps of suite `steps` take as programs, without a GPU: registers them with the
// daemon's own parts on a device that does nothing, and asks the cost model for both engines.
// Prints a JSON object a scenario, which tests/bench/report_programs.py holds against what was
// measured. Deterministic.
#include <algorithm>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "kernels/program/program_times.h"
#include "kernels/step/step_plan.h"
#include "nlohmann/json.hpp"
#include "tests/bench/gpu_models.h"
#include "tests/bench/null_service.h"
#include "tests/bench/planned_step.h"
#include "tests/bench/step_scenario.h"

namespace concert::bench {
namespace {

using kernels::GraphNode;
using kernels::Pass;
using kernels::Program;
using nlohmann::json;
using policies::DeviceModel;
using policies::ProgramCostConstants;

struct Options {
  std::string scenarios = "tests/bench/scenarios/steps.json";
  std::string filter;
  ProgramCostConstants costs;
};

// Keeps what it was told to prepare.
class PlanningDevice : public NullDevice {
 public:
  absl::Status Prepare(Program& program) override {
    const auto plan = kernels::PlanStep(program, kernels::kStepExchangeBytes);
    if (plan.ok()) {
      program.stages = kernels::StagesOf(program, *plan);
    } else {
      program.why_no_step = std::string(plan.status().message());
    }
    program_ = &program;
    return absl::OkStatus();
  }
  absl::Status Prepare(Pass& pass) override {
    pass_ = &pass;
    return absl::OkStatus();
  }
  // The last ones.
  const Program& program() const { return *program_; }
  const Pass* pass() const { return pass_; }

 private:
  const Program* program_ = nullptr;
  const Pass* pass_ = nullptr;
};

double GraphTogetherUs(const DeviceModel& gpu, const Program& program, double alone_us,
                       int clients) {
  const double memory_us = 1e6 * static_cast<double>(program.work.hbm_bytes) /
                           (gpu.hbm_bytes_per_s * gpu.costs.hbm_efficiency);
  return policies::TogetherUs(alone_us, std::max(0.0, alone_us - memory_us), memory_us, clients);
}

json DescribeOn(const DeviceModel& gpu, const Program& program, int clients,
                const ProgramCostConstants& costs) {
  json entry;
  const auto describe_graph = [&](const char* name, std::span<const GraphNode> nodes) {
    const double alone_us = kernels::GraphCostOf(gpu, program, nodes, costs).us;
    entry[name]["alone_us"] = alone_us;
    if (clients > 1)
      entry[name]["per_s"] = 1e6 * clients / GraphTogetherUs(gpu, program, alone_us, clients);
  };
  describe_graph("graph", kernels::GraphNodesOf(program));
  describe_graph("graph of ops", kernels::NodesOfOps(program));
  if (program.stages.empty()) return entry;
  entry["step"]["alone_us"] = policies::StepCost(gpu, kernels::StageWorksOf(program), {}, costs).us;
  if (clients > 1)
    entry["step"]["per_s"] =
        1e6 * clients /
        policies::StepTogetherUs(gpu, kernels::StageWorksOf(program), clients, costs);
  return entry;
}

// Of all of its runs together.
void DescribePass(const DeviceModel& gpu, const Pass& pass, const ProgramCostConstants& costs,
                  json& entry) {
  const auto describe = [&](const char* name, std::span<const GraphNode> nodes) {
    const double us = kernels::GraphCostOf(gpu, pass, nodes, pass.member_count, costs).us;
    entry[name] = {{"us", us}, {"per_s", 1e6 * pass.member_count / us}};
  };
  describe("pass", kernels::GraphNodesOf(pass.program, pass.owners));
  describe("pass of ops", kernels::NodesOfOps(pass.program));
}

// One entry a kind of client.
json Describe(const StepScenario& scenario, const ProgramCostConstants& costs) {
  json kinds = json::array();
  for (size_t first = 0; first < scenario.clients.size();) {
    const StepScenario::Client& client = scenario.clients[first];
    size_t end = first;
    while (end < scenario.clients.size() && ClientName(scenario.clients[end]) == ClientName(client))
      ++end;
    auto owned = std::make_unique<PlanningDevice>();
    const PlanningDevice& device = *owned;
    NullService service("auto", 1, std::move(owned));
    const auto count = static_cast<int>(end - first);
    const StepData data(client, first);
    const PlannedWeights weights(service.session(), data);
    std::vector<std::unique_ptr<PlannedStep>> steps;
    for (int i = 0; i < (client.shares_weights ? count : 1); ++i)
      steps.push_back(std::make_unique<PlannedStep>(service.session(), data, weights));
    const bool alone = static_cast<size_t>(count) < scenario.clients.size();
    json kind = {{"client", ClientName(client)}, {"clients", count}};
    kind["ops"] = device.program().ops.size(), kind["stages"] = device.program().stages.size();
    if (!device.program().why_no_step.empty()) kind["why_no_step"] = device.program().why_no_step;
    for (const std::string& name : GpuModelNames()) {
      const DeviceModel gpu = GpuModelOf(name);
      kind[name] = DescribeOn(gpu, device.program(), alone ? 1 : count, costs);
      if (device.pass() != nullptr) DescribePass(gpu, *device.pass(), costs, kind[name]);
    }
    kinds.push_back(std::move(kind));
    first = end;
  }
  return {{"name", scenario.name}, {"kinds", kinds}};
}

absl::Status Run(const Options& options) {
  const auto scenarios = ReadStepScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  for (const StepScenario& scenario : *scenarios)
    std::cout << Describe(scenario, options.costs).dump() << "\n";
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app{"Predicts what the steps of suite steps take as programs, without a GPU"};
  Options options;
  app.add_option("--scenarios", options.scenarios, "Suite file")->check(CLI::ExistingFile);
  app.add_option("--filter", options.filter, "Only scenarios that match (POSIX extended)");
  app.add_option("--graph-link-us", options.costs.graph_link_us, "Instead of the model's");
  app.add_option("--step-pass-us", options.costs.step_pass_us, "Instead of the model's");
  CLI11_PARSE(app, argc, argv);
  const absl::Status ran = Run(options);
  if (!ran.ok()) std::cerr << ran.message() << "\n";
  return ran.ok() ? 0 : 1;
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) { return concert::bench::Main(argc, argv); }
