// Time of what is done once for a program, all of it on the CPU: the arena, the ops with their
// addresses, the stages of the step kernel, and what a graph launches. Target: 50 ms in all for 250
// ops.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/program/graph_nodes.h"
#include "kernels/step/step_plan.h"
#include "tests/unit/kernels/step_recorder.h"

namespace concert::kernels {
namespace {

// Weights, caches and tables that do not exist: planning reads no operand.
const std::vector<BufferRange> kMemory = {
    {}, {0x1'0000'0000, 16'384 * kMiB, 0, false}, {0x8'0000'0000, 16'384 * kMiB, 0, false}};
constexpr Address kArena = 0x10'0000'0000;
constexpr uint64_t kExchangeBytes = 16 * kMiB;

// Layers of nine ops each, with one set of slots for all.
StepRecorder Recorded(int64_t layers) {
  const StepModel model;
  StepRecorder recorder(model, kMemory);
  const uint32_t residual = recorder.Slot(model.hidden, /*binding=*/true);
  const StepSlots slots = StepSlots::Of(recorder, model);
  for (int64_t i = 0; i < layers; ++i)
    RecordLayer(recorder, model, slots, residual, i == 0 ? 0 : slots.update);
  return recorder;
}

void BindOps(benchmark::State& state) {
  StepRecorder recorder = Recorded(state.range(0));
  for (auto _ : state) {
    recorder.PlaceArena();
    benchmark::DoNotOptimize(recorder.Bind(kArena));
  }
  state.counters["ops"] = static_cast<double>(recorder.Bind(kArena)->ops.size());
}

void PlanStages(benchmark::State& state) {
  StepRecorder recorder = Recorded(state.range(0));
  recorder.PlaceArena();
  const std::unique_ptr<Program> program = recorder.Bind(kArena);
  size_t stages = 0;
  for (auto _ : state) {
    const absl::StatusOr<StepPlan> plan = PlanStep(*program, kExchangeBytes);
    if (!plan.ok()) return state.SkipWithError(plan.status().ToString().c_str());
    stages = plan->stages.size();
  }
  state.counters["ops"] = static_cast<double>(program->ops.size());
  state.counters["stages"] = static_cast<double>(stages);
}

void FindNodes(benchmark::State& state) {
  StepRecorder recorder = Recorded(state.range(0));
  recorder.PlaceArena();
  const std::unique_ptr<Program> program = recorder.Bind(kArena);
  std::vector<GraphNode> nodes;
  for (auto _ : state) nodes = GraphNodesOf(*program);
  state.counters["ops"] = static_cast<double>(program->ops.size());
  state.counters["launches"] = static_cast<double>(std::count_if(
      nodes.begin(), nodes.end(), [](const GraphNode& node) { return node.IsLaunched(); }));
}

BENCHMARK(BindOps)->Arg(12)->Arg(28)->Arg(110)->Unit(benchmark::kMillisecond);
BENCHMARK(PlanStages)->Arg(12)->Arg(28)->Arg(110)->Unit(benchmark::kMillisecond);
BENCHMARK(FindNodes)->Arg(12)->Arg(28)->Arg(110)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace concert::kernels

BENCHMARK_MAIN();
