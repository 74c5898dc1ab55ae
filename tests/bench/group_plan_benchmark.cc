// Time of planning one group launch: target 20 us for 8 problems not seen before, 150 us for 64.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/group/plan/compiler.h"

namespace concert::kernels {
namespace {

using policies::DeviceModel;
using policies::Problem;

// More launches than the compiler remembers, so that every plan is made anew.
constexpr int kLaunches = 2 * kWorkListSlots;

// Decode-like and expert-like shapes, all different.
std::vector<Problem> RandomProblems(int64_t count, std::mt19937& random) {
  std::vector<Problem> problems;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t m = 1 + random() % 512;
    const uint32_t n = 256 + 8 * (random() % 512);
    const uint32_t k = 512 + 8 * (random() % 512);
    problems.push_back({.m = m, .n = n, .k = k});
  }
  return problems;
}

std::vector<std::vector<Problem>> Launches(int64_t count) {
  std::mt19937 random(1);
  std::vector<std::vector<Problem>> launches;
  for (int i = 0; i < kLaunches; ++i) launches.push_back(RandomProblems(count, random));
  return launches;
}

const GroupWorkList* Compile(GroupCompiler& compiler, std::span<const Problem> problems) {
  compiler.Reclaim();
  return compiler.Compile(problems, 0);
}

void Known(benchmark::State& state) {
  std::mt19937 random(1);
  const auto problems = RandomProblems(state.range(0), random);
  GroupCompiler compiler{DeviceModel()};
  for (auto _ : state) benchmark::DoNotOptimize(Compile(compiler, problems));
}

// Neither the launch nor any of its shapes has been seen lately.
void Unseen(benchmark::State& state) {
  const auto launches = Launches(state.range(0));
  GroupCompiler compiler{DeviceModel()};
  size_t next = 0;
  for (auto _ : state) benchmark::DoNotOptimize(Compile(compiler, launches[next++ % kLaunches]));
}

// Known shapes in an order not seen before.
void KnownShapes(benchmark::State& state) {
  std::mt19937 random(1);
  const auto pool = RandomProblems(state.range(0), random);
  std::vector<std::vector<Problem>> launches(kLaunches, pool);
  for (auto& launch : launches) std::shuffle(launch.begin(), launch.end(), random);
  GroupCompiler compiler{DeviceModel()};
  size_t next = 0;
  for (auto _ : state) benchmark::DoNotOptimize(Compile(compiler, launches[next++ % kLaunches]));
}

void Predict(benchmark::State& state) {
  std::mt19937 random(1);
  const auto problems = RandomProblems(state.range(0), random);
  const GroupCompiler compiler{DeviceModel()};
  for (auto _ : state) benchmark::DoNotOptimize(compiler.PredictUs(problems, 0));
}

BENCHMARK(Known)->Arg(1)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(Unseen)->Arg(1)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(KnownShapes)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(Predict)->Arg(1)->Arg(8)->Arg(64)->Arg(256);

}  // namespace
}  // namespace concert::kernels

BENCHMARK_MAIN();
