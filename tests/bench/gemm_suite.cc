#include "tests/bench/gemm_suite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "policies/work.h"
#include "tests/bench/daemon_contender.h"
#include "tests/bench/local_gpu.h"
#include "tests/bench/node_under_test.h"
#include "tests/bench/progress.h"
#include "tests/bench/result_file.h"
#include "tests/bench/scenario_file.h"

namespace concert::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kSeed = 20260101;
constexpr double kTurnUs = 2000;  // long against one batch, short against changes of the clocks
constexpr int kMinBatches = 8;
constexpr int kMaxBatches = 256;
constexpr int kSimBatches = 6;  // the simulator computes on the CPU
constexpr double kLossTolerance = 0.02;

// cuBLASLt in this process, on the memory of a daemon contender.
class LocalContender : public Contender {
 public:
  LocalContender(std::unique_ptr<LocalRun> run, DaemonContender& memory)
      : run_(std::move(run)), memory_(memory) {}
  absl::StatusOr<double> Run(int batches) override { return run_->Run(batches); }
  absl::Status PoisonOutputs() override { return memory_.PoisonOutputs(); }
  absl::StatusOr<double> WorstError() override { return memory_.WorstError(); }

 private:
  std::unique_ptr<LocalRun> run_;
  DaemonContender& memory_;
};

struct Baseline {
  const char* name;
  LocalGpu::Form form;
};
constexpr Baseline kBaselines[] = {{"serial", LocalGpu::Form::kSerial},
                                   {"streams", LocalGpu::Form::kStreams}};

// Who takes part in every scenario.
struct Arena {
  NodeUnderTest concert;
  std::unique_ptr<LocalGpu> local;                              // on a GPU
  std::vector<std::pair<std::string, NodeUnderTest>> policies;  // on the simulator
};

struct Entrant {
  std::string name;
  std::unique_ptr<Contender> contender;
  std::vector<double> samples_us;
};

absl::StatusOr<Arena> OpenArena(const RunOptions& options, json& header) {
  absl::StatusOr<NodeUnderTest> concert = OpenNodeUnderTest(options);
  if (!concert.ok()) return concert.status();
  Arena arena{.concert = *std::move(concert), .local = nullptr, .policies = {}};
  header = MakeHeader(arena.concert, options);
  if (!arena.concert.is_sim()) {
    std::array<uint8_t, 16> uuid;
    std::memcpy(uuid.data(), arena.concert.gpu.uuid, uuid.size());
    absl::StatusOr<std::unique_ptr<LocalGpu>> local = LocalGpu::Open(uuid);
    if (!local.ok()) return local.status();
    arena.local = *std::move(local);
    const LocalGpu::Versions versions = arena.local->versions();
    header.update({{"baseline_path", "local"},
                   {"driver", versions.driver},
                   {"cuda", versions.cuda},
                   {"cublas", versions.cublas},
                   {"nccl", versions.nccl}});
    return arena;
  }
  header["baseline_path"] = "policy";
  for (const Baseline& baseline : kBaselines) {
    RunOptions with_policy = options;
    with_policy.socket.clear();
    with_policy.device = "sim";
    with_policy.policy = baseline.name;
    absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(with_policy);
    if (!node.ok()) return node.status();
    arena.policies.emplace_back(baseline.name, *std::move(node));
  }
  return arena;
}

// The concert entrant comes first. A baseline that cuBLASLt has no kernel for is left out.
absl::StatusOr<std::vector<Entrant>> MakeEntrants(const Arena& arena, GemmWorkload& workload) {
  const std::vector<uint8_t> image = workload.MakeImage();
  std::vector<Entrant> entrants;
  auto concert = DaemonContender::Make(arena.concert.session, workload, image);
  if (!concert.ok()) return concert.status();
  DaemonContender& memory = **concert;
  entrants.push_back({"concert", *std::move(concert), {}});
  for (const auto& [name, node] : arena.policies) {
    auto contender = DaemonContender::Make(node.session, workload, image);
    if (!contender.ok()) return contender.status();
    entrants.push_back({name, *std::move(contender), {}});
  }
  if (!arena.local) return entrants;
  Result<void*> address = memory.buffer().Address();
  if (!address.ok()) return ToAbsl(address.status());
  for (const Baseline& baseline : kBaselines) {
    auto run = arena.local->Record(workload, reinterpret_cast<uint64_t>(*address), baseline.form);
    if (absl::IsNotFound(run.status())) continue;
    if (!run.ok()) return run.status();
    entrants.push_back(
        {baseline.name, std::make_unique<LocalContender>(*std::move(run), memory), {}});
  }
  return entrants;
}

// DATA_LOSS when results are wrong.
absl::Status Check(Entrant& entrant, const GemmWorkload& workload, double& worst) {
  absl::StatusOr<double> error = entrant.contender->WorstError();
  if (!error.ok()) return error.status();
  double tolerance = 0;
  for (const GemmShape& shape : workload.scenario().gemms) {
    tolerance = std::max(tolerance, GemmWorkload::Tolerance(shape.dtype));
  }
  if (!(*error <= tolerance)) {
    return absl::DataLossError(absl::StrCat(entrant.name,
                                            " computes wrong results: relative error ", *error,
                                            ", at most ", tolerance, " allowed"));
  }
  worst = std::max(worst, *error);
  return absl::OkStatus();
}

// Checks one contender over all operand sets and says how many batches fill its turn.
absl::StatusOr<int> WarmUp(Entrant& entrant, const GemmWorkload& workload, bool is_sim,
                           double& worst) {
  if (absl::Status poisoned = entrant.contender->PoisonOutputs(); !poisoned.ok()) return poisoned;
  const absl::StatusOr<double> batch_us = entrant.contender->Run(std::max(2, workload.sets()));
  if (!batch_us.ok()) return batch_us.status();
  if (absl::Status checked = Check(entrant, workload, worst); !checked.ok()) return checked;
  if (is_sim) return kSimBatches;
  return static_cast<int>(std::clamp<double>(kTurnUs / *batch_us, kMinBatches, kMaxBatches));
}

double PeakFlops(const policies::DeviceModel& model, Dtype dtype) {
  if (dtype == Dtype::kFp8E4m3) return model.fp8_flops;
  return dtype == Dtype::kFp32 ? model.fp32_flops : model.tensor_flops;
}

double BoundUs(const GemmScenario& scenario) {
  const policies::DeviceModel model;
  double compute_s = 0, bytes = 0;
  for (const GemmShape& shape : scenario.gemms) {
    compute_s += shape.flops() / PeakFlops(model, shape.dtype);
    bytes += shape.bytes();
  }
  return 1e6 * std::max(compute_s, bytes / model.hbm_bytes_per_s);
}

json Describe(const GemmScenario& scenario, const std::vector<Entrant>& entrants, double worst) {
  json entry = {{"name", scenario.name},
                {"class", scenario.group},
                {"bound_us", BoundUs(scenario)},
                {"max_rel_error", worst}};
  const Entrant* fastest = nullptr;
  double fastest_us = std::numeric_limits<double>::infinity();
  for (const Entrant& entrant : entrants) {
    const json spread = Spread(entrant.samples_us);
    entry["times_us"][entrant.name] = spread;
    if (spread["p50"] < fastest_us) {
      fastest = &entrant;
      fastest_us = spread["p50"];
    }
  }
  if (fastest != nullptr) entry["oracle"] = {{"form", fastest->name}, {"p50", fastest_us}};
  return entry;
}

absl::StatusOr<json> Measure(const Arena& arena, const GemmScenario& scenario, int rounds) {
  GemmWorkload workload(scenario, kSeed);
  absl::StatusOr<std::vector<Entrant>> entrants = MakeEntrants(arena, workload);
  if (!entrants.ok()) return entrants.status();
  double worst = 0;
  std::vector<int> batches;
  for (Entrant& entrant : *entrants) {
    absl::StatusOr<int> count = WarmUp(entrant, workload, arena.concert.is_sim(), worst);
    if (!count.ok()) return count.status();
    batches.push_back(*count);
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t turn = 0; turn < entrants->size(); ++turn) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      const size_t who = (round + turn) % entrants->size();
      Entrant& entrant = (*entrants)[who];
      const absl::StatusOr<double> batch_us = entrant.contender->Run(batches[who]);
      if (!batch_us.ok()) return batch_us.status();
      entrant.samples_us.push_back(*batch_us);
    }
  }
  for (Entrant& entrant : *entrants) {
    if (absl::Status checked = Check(entrant, workload, worst); !checked.ok()) return checked;
  }
  return Describe(scenario, *entrants, worst);
}

}  // namespace

absl::Status RunGemmSuite(const RunOptions& options, json& result) {
  const auto scenarios = ReadGemmScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  const absl::StatusOr<Arena> arena = OpenArena(options, result["header"]);
  if (!arena.ok()) return arena.status();

  json skipped = json::array(), failed = json::array();
  absl::Status interrupted;
  Progress progress(scenarios->size());
  for (const GemmScenario& scenario : *scenarios) {
    progress.Step(scenario.name);
    if (!scenario.unsupported.empty()) {
      skipped.push_back({{"name", scenario.name}, {"why", scenario.unsupported}});
      continue;
    }
    const absl::StatusOr<json> entry = Measure(*arena, scenario, options.rounds);
    if (absl::IsCancelled(entry.status()) && Interrupted()) {
      interrupted = entry.status();
      break;
    }
    if (entry.ok()) {
      result["scenarios"].push_back(*entry);
    } else {
      failed.push_back({{"name", scenario.name}, {"why", entry.status().ToString()}});
    }
  }
  result["summary"] = SpeedupSummary(result["scenarios"], kLossTolerance);
  result["summary"].update({{"skipped", skipped}, {"failed", failed}});
  if (!interrupted.ok()) return interrupted;
  if (failed.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(failed.size(), " of ", scenarios->size(),
                                          " scenarios failed; the first: ", failed[0].dump()));
}

void PrintGemmResult(const json& result, std::ostream& out) {
  out << absl::StrFormat("%-40s %9s %9s %9s %9s %8s %8s\n", "scenario (median us)", "concert",
                         "serial", "streams", "bound", "x serial", "x strms");
  for (const json& scenario : result["scenarios"]) {
    const json& times = scenario["times_us"];
    const double concert_us = times["concert"]["p50"];
    const auto time = [&](const char* form) {
      return times.contains(form) ? times[form]["p50"].get<double>() : std::nan("");
    };
    out << absl::StrFormat("%-40s %9.1f %9.1f %9.1f %9.1f %8.2f %8.2f\n",
                           scenario["name"].get<std::string>(), concert_us, time("serial"),
                           time("streams"), scenario["bound_us"].get<double>(),
                           time("serial") / concert_us, time("streams") / concert_us);
  }
  const json& summary = result["summary"];
  const json speedups = summary.value("speedup_over", json::object());
  for (const auto& [form, speedup] : speedups.items()) {
    out << absl::StrFormat("over %-8s geomean %.2fx, worst %.2fx, best %.2fx\n", form,
                           speedup["geomean"].get<double>(), speedup["worst"].get<double>(),
                           speedup["best"].get<double>());
  }
  out << "lost to the best baseline by more than 2 %: " << summary["lost_to_best_baseline"].dump()
      << "\n";
  for (const char* list : {"skipped", "failed"}) {
    for (const json& entry : summary[list]) out << list << ": " << entry.dump() << "\n";
  }
}

}  // namespace concert::bench
