// Time of one Decide. Targets: 1 us for a known signature of up to 64 GEMMs; unseen, 20 us for 8
// and 150 us for 64, what the compiler takes included.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>

#include "policies/seam/policy.h"
#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

Work GemmOf(uint32_t m, uint32_t salt) { return Groupable(m, 1024 + 8 * salt, 4096); }

// `count` ready GEMMs of four sessions on a device with the group kernel; `salt` makes every shape
// of one snapshot differ from those of others.
Scene SceneOf(int64_t count, uint32_t salt) {
  Scene scene;
  scene.device.group_kernel = true;
  for (int64_t i = 0; i < count; ++i) {
    scene.Of(static_cast<uint32_t>(i * 4 / count), GemmOf(1 + static_cast<uint32_t>(i), salt));
  }
  scene.Running(Gemm(64, 1536, 4096), 0).Running(Gemm(64, 1536, 4096), 1);
  return scene;
}

void DecideKnown(benchmark::State& state, const PolicyInfo& info) {
  const Scene scene = SceneOf(state.range(0), 0);
  const auto policy = info.make(InputsOf(scene.device));
  const Snapshot snapshot = scene.Get();
  Plan plan;
  for (auto _ : state) {
    policy->Reclaim();
    policy->Decide(snapshot, plan);
    benchmark::DoNotOptimize(plan);
  }
}

// Every decision sees shapes that none of the thousands before it has seen: neither costs nor
// choices are known.
void DecideUnseen(benchmark::State& state, const PolicyInfo& info) {
  Scene scene = SceneOf(state.range(0), 0);
  const auto policy = info.make(InputsOf(scene.device));
  const Snapshot snapshot = scene.Get();
  Plan plan;
  uint32_t salt = 0;
  for (auto _ : state) {
    state.PauseTiming();
    ++salt;
    for (ReadyOp& op : scene.ready) {
      op.work = GemmOf(op.work.m, salt % 4000);
      op.work_hash = HashWork(op.work);
    }
    state.ResumeTiming();
    policy->Reclaim();
    policy->Decide(snapshot, plan);
    benchmark::DoNotOptimize(plan);
  }
}

}  // namespace
}  // namespace concert::policies

int main(int argc, char** argv) {
  using concert::policies::PolicyInfo;
  for (const PolicyInfo& info : concert::policies::AllPolicies()) {
    const std::string name(info.name);
    benchmark::RegisterBenchmark((name + "/known").c_str(), concert::policies::DecideKnown, info)
        ->Arg(1)
        ->Arg(8)
        ->Arg(64)
        ->Arg(256);
    benchmark::RegisterBenchmark((name + "/unseen").c_str(), concert::policies::DecideUnseen, info)
        ->Arg(1)
        ->Arg(8)
        ->Arg(64)
        ->Arg(256);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
