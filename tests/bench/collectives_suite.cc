#include "tests/bench/collectives_suite.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/collectives_result.h"
#include "tests/bench/rank_stage.h"
#include "tests/bench/rank_turns.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/scenario_loop.h"
#include "tests/bench/scenario_parts.h"

namespace concert::bench {
namespace {

using nlohmann::json;

constexpr double kCollectivesTolerance = 0.02;
constexpr int kSmallestLog2 = 10, kLargestLog2 = 30, kStepLog2 = 2;
// Beside which collectives run: 175 us on an H200 if it has all SMs. The simulator computes it.
constexpr GemmShape kGemm = {.m = 4096, .n = 4096, .k = 4096};
constexpr GemmShape kSimGemm = {.m = 64, .n = 256, .k = 128};
// GEMMs go on after the collective has ended: it has none of its time to itself.
constexpr double kGemmsOverCollective = 1.5;
constexpr uint32_t kMaxGemms = 128;

struct Size {
  std::string name;
  CollectiveShape shape;
};

std::string SizeName(int log2) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  return absl::StrCat(1 << log2 % 10, kUnits[log2 / 10]);
}

std::vector<Size> AllSizes(uint32_t ranks) {
  std::vector<Size> sizes;
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    for (int log2 = kSmallestLog2; log2 <= kLargestLog2; log2 += kStepLog2) {
      // Each rank has as many elements; with 3 GPUs a little less than the name says.
      const uint64_t unit = ranks * CollectiveShape::kElementBytes;
      const uint64_t bytes = (uint64_t{1} << log2) / unit * unit;
      sizes.push_back({.name = absl::StrCat(KindName(kind), "-", SizeName(log2)),
                       .shape = {.kind = kind, .bytes = bytes, .ranks = ranks}});
    }
  }
  return sizes;
}

absl::StatusOr<std::vector<Size>> WantedSizes(uint32_t ranks, const std::string& filter) {
  std::vector<Size> sizes = AllSizes(ranks);
  std::vector<std::string> names;
  for (const Size& size : sizes) names.push_back(size.name);
  const auto wanted = MatchingNames(names, "suite collectives", filter);
  if (!wanted.ok()) return wanted.status();
  std::erase_if(sizes, [&](const Size& size) { return !wanted->contains(size.name); });
  return sizes;
}

std::vector<RankContender> Others(const std::string& policy, bool is_sim) {
  std::vector<RankContender> others = {{.name = "concert_8_sms", .policy = policy, .sms = 8},
                                       {.name = "nccl", .way = "priority"},
                                       {.name = "nccl_8_ctas", .way = "priority_8_ctas"}};
  if (is_sim) {
    others[1] = {.name = "nccl", .policy = "priority", .transport = "nccl"};
    others[2] = {.name = "nccl_8_ctas", .policy = "priority", .transport = "nccl", .sms = 8};
  }
  return others;
}

// Short ones scatter more and cost less; the first of them after a pause find caches cold.
RankTurn TurnFor(const CollectiveShape& shape, size_t contender) {
  const uint32_t runs = shape.bytes <= 1 << 20 ? 10 : shape.bytes <= 64 << 20 ? 4 : 2;
  return {.contender = contender, .collective = true, .runs = runs, .lead_in = 1 + runs / 2};
}

// How many GEMMs run longer than the collective, by any contender.
absl::StatusOr<uint32_t> GemmsBeside(RankCrew& crew, size_t contenders) {
  double collective_us = 0, gemm_us = 0;
  for (size_t who = 0; who < contenders; ++who) {
    const auto alone = crew.Run(who, /*gemms=*/false, /*collective=*/true, 2);
    if (!alone.ok()) return alone.status();
    collective_us = std::max(collective_us, alone->back().collective_us);
    const auto gemm = crew.Run(who, /*gemms=*/true, /*collective=*/false, 2);
    if (!gemm.ok()) return gemm.status();
    gemm_us = who == 0 ? gemm->back().gemms_us : std::min(gemm_us, gemm->back().gemms_us);
  }
  const double gemms = std::ceil(kGemmsOverCollective * collective_us / gemm_us);
  return static_cast<uint32_t>(std::clamp<double>(gemms, 1, kMaxGemms));
}

// Poisons, runs and checks everybody; the worst error.
absl::StatusOr<double> VerifyAll(RankCrew& crew, const std::vector<RankContender>& contenders) {
  double worst = 0;
  for (size_t who = 0; who < contenders.size(); ++who) {
    const absl::StatusOr<double> error = crew.Verify(who);
    if (!error.ok())
      return absl::Status(error.status().code(),
                          absl::StrCat(contenders[who].name, ": ", error.status().message()));
    worst = std::max(worst, *error);
  }
  return worst;
}

// Their samples go to `samples`, which must outlive them.
std::vector<RankTurn> TurnsOf(const std::vector<RankContender>& contenders,
                              const CollectiveShape& shape, CollectiveSamples& samples) {
  std::vector<RankTurn> turns;
  for (size_t who = 0; who < contenders.size(); ++who) {
    const std::string& name = contenders[who].name;
    RankTurn& alone = turns.emplace_back(TurnFor(shape, who));
    alone.add = [own = &samples.alone[name]](const RunTimes& run) {
      own->push_back(run.collective_us);
    };
    const auto add = [own = &samples.beside[name], gemms = &samples.gemms_beside[name],
                      both = &samples.both[name]](const RunTimes& run) {
      own->push_back(run.collective_us);
      gemms->push_back(run.gemms_us);
      both->push_back(std::max(run.collective_us, run.gemms_us));
    };
    turns.push_back({.contender = who, .gemms = true, .collective = true, .add = add});
  }
  return turns;
}

absl::StatusOr<json> Measure(RankStage& stage, const Size& size, const RankMemorySizes& sizes,
                             int rounds) {
  const absl::StatusOr<RankCrew*> crew = stage.Crew(stage.gpus(), sizes);
  if (!crew.ok()) return crew.status();
  OverlapTask task = {stage.is_sim() ? kSimGemm : kGemm, 1, size.shape};
  if (absl::Status prepared = (*crew)->Prepare(task); !prepared.ok()) return prepared;
  const absl::StatusOr<double> worst = VerifyAll(**crew, stage.contenders());
  if (!worst.ok()) return worst.status();
  const absl::StatusOr<uint32_t> gemms = GemmsBeside(**crew, stage.contenders().size());
  if (!gemms.ok()) return gemms.status();
  task.repeat = *gemms;
  if (absl::Status prepared = (*crew)->Prepare(task); !prepared.ok()) return prepared;
  CollectiveSamples samples;
  const std::vector<RankTurn> turns = TurnsOf(stage.contenders(), size.shape, samples);
  if (absl::Status taken = TakeRankTurns(**crew, turns, rounds); !taken.ok()) return taken;
  json entry = DescribeCollective(size.name, size.shape, samples, stage.memory_bytes_per_s());
  entry["gemms_beside"] = task.repeat;
  entry["max_rel_error"] = *worst;
  return entry;
}

// A median or a number; "-" where it was not measured.
std::string Cell(const json& values, const std::string& name) {
  if (!values.contains(name)) return "-";
  const json& value = values[name];
  return absl::StrFormat("%.1f", (value.is_object() ? value["p50"] : value).get<double>());
}

}  // namespace

absl::Status RunCollectivesSuite(const RunOptions& options, json& result) {
  absl::StatusOr<std::unique_ptr<RankStage>> stage = RankStage::Open(options, result["header"]);
  if (!stage.ok()) return stage.status();
  if ((*stage)->gpus() < 2)
    return absl::FailedPreconditionError("suite collectives needs two GPUs; this node has one");
  const absl::StatusOr<std::vector<Size>> sizes = WantedSizes((*stage)->gpus(), options.filter);
  if (!sizes.ok()) return sizes.status();
  const std::vector<RankContender> others = Others(options.policy, (*stage)->is_sim());
  (*stage)->Add(others, result["header"]);
  result["header"]["baselines"] = {"nccl"};
  std::vector<OverlapTask> tasks;
  for (const Size& size : *sizes)
    tasks.push_back({(*stage)->is_sim() ? kSimGemm : kGemm, 1, size.shape});
  const RankMemorySizes memory = SizesFor(tasks);
  return MeasureScenarios(
      options, *sizes,
      [&](const Size& size) {
        absl::StatusOr<json> entry = Measure(**stage, size, memory, options.rounds);
        (*stage)->DropCrewAfter(entry.status());
        return entry;
      },
      [&](const json& entries) { return CollectivesSummary(entries, kCollectivesTolerance); },
      result);
}

void PrintCollectivesResult(const json& result, std::ostream& out) {
  constexpr const char* kNames[] = {"concert", "nccl", "concert_8_sms", "nccl_8_ctas"};
  out << absl::StrFormat("%-22s", "alone, us (GB/s)");
  for (const char* name : kNames) out << absl::StrFormat(" %20s", name);
  out << absl::StrFormat(" %10s | beside GEMMs:", "bound");
  for (const char* name : kNames) out << absl::StrFormat(" %14s", name);
  out << "\n";
  for (const json& scenario : result["scenarios"]) {
    out << absl::StrFormat("%-22s", scenario["name"].get<std::string>());
    for (const char* name : kNames) {
      const std::string time = Cell(scenario["times_us"], name);
      out << absl::StrFormat(" %10s (%7s)", time, Cell(scenario["busbw_gb_per_s"], name));
    }
    out << absl::StrFormat(" %10s |              ", Cell(scenario, "bound_us"));
    for (const char* name : kNames)
      out << absl::StrFormat(" %14s", Cell(scenario["beside_us"], name));
    out << "\n";
  }
  for (const char* key : {"speedup_over", "beside", "eight_sms", "small", "failed"}) {
    if (result["summary"].contains(key))
      out << key << ": " << result["summary"][key].dump() << "\n";
  }
}

}  // namespace concert::bench
