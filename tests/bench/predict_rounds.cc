// Predicts the suite `gemm` without a GPU: how the batches in flight go round, which of them share
// a launch and when the GPU runs dry. For trying rules of the scheduler and policies, before a GPU
// is asked.
//
// The dispatcher is the real one, with its scheduler and policy, in a time of its own: what it and
// the client take are constants, and the GPU is a model (tests/bench/model_gpu.h) with the policy's
// costs. So the round is real, and times are as good as the cost model:
// `--measured` holds them against a result of `concert-bench run --suite gemm`. Deterministic.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/gemm_workload.h"
#include "tests/bench/model_gpu.h"
#include "tests/bench/result_file.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

struct Options {
  std::string scenarios = "tests/bench/scenarios/gemm.json";
  std::string filter, measured, policy = "auto";
  int batches = 2000;
  int in_flight = GemmWorkload::kBatchesInFlight;
  int depth = 1;
  double backlog_us = 16;
  RoundCosts costs;
};

// What came of a scenario. Times are microseconds per batch.
struct Prediction {
  double batch_us = 0, idle_us = 0, dispatcher_us = 0;
  double library_share = 0;        // of the ops
  std::map<int, double> launches;  // per batch, by ops
};

// The client of the suite, the dispatcher and the GPU, each with a time of its own.
class Rounds {
 public:
  Rounds(const GemmScenario& scenario, const Options& options)
      : options_(options),
        shapes_(scenario.gemms),
        gpu_(options.costs, clock_),
        bed_(gpu_, options.policy, DispatcherOptionsOf(options),
             static_cast<uint32_t>(shapes_.size()) * options.in_flight) {}

  // DEADLINE_EXCEEDED if the batches do not end, as when the policy never launches them.
  absl::StatusOr<Prediction> Run() {
    for (int i = 0; i < options_.in_flight; ++i) Submit(0);
    const int warm_up = options_.batches / 4;
    double begin_us = 0;
    while (ended_ < options_.batches) {
      const int before = ended_;
      if (clock_.now_us > kLimitUs) return absl::DeadlineExceededError("batches do not end");
      Publish();
      shown_ += gpu_.Show();
      CollectAndSubmit();
      Turn();
      if (before < warm_up && ended_ >= warm_up) {
        begin_us = clock_.now_us;
        measured_from_ = ended_;
        dispatcher_us_ = 0;
        gpu_.Forget();
      }
    }
    return Summarise(clock_.now_us - begin_us);
  }

 private:
  static daemon::DispatcherOptions DispatcherOptionsOf(const Options& options) {
    daemon::DispatcherOptions result;
    result.scheduler.depth = options.depth;
    result.scheduler.backlog_ns = static_cast<int64_t>(options.backlog_us * 1e3);
    return result;
  }
  uint32_t QueueOf(int batch, size_t gemm) const {
    return static_cast<uint32_t>(batch % options_.in_flight * shapes_.size() + gemm);
  }

  // The client begins the next batch at `us`, if it has nothing else to do.
  void Submit(double us) {
    client_free_at_us_ = std::max(client_free_at_us_, us) + options_.costs.submit_batch +
                         options_.costs.submit_op * static_cast<double>(shapes_.size());
    on_their_way_us_.push_back(client_free_at_us_);
  }

  // Puts into the ring what the client has written by now.
  void Publish() {
    for (; !on_their_way_us_.empty() && on_their_way_us_.front() <= clock_.now_us; ++published_) {
      on_their_way_us_.pop_front();
      bed_.Submit(shapes_, QueueOf(published_, 0), published_ % kSets);
    }
  }

  // The client has watched the oldest batch all the time.
  void CollectAndSubmit() {
    while (ended_ < published_) {
      double end_us = 0;
      for (size_t gemm = 0; gemm < shapes_.size(); ++gemm) {
        const uint32_t queue = QueueOf(ended_, gemm);
        if (bed_.timeline(queue) < bed_.ticket(queue)) return;
        end_us = std::max(end_us, gpu_.VisibleAtUs(bed_.timeline(queue)));
      }
      ++ended_;
      Submit(end_us);
    }
  }

  void Turn() {
    constexpr double kGlanceUs = 0.05;
    const double begin_us = clock_.now_us;
    const uint64_t admitted = bed_.submitted() - admitted_;
    clock_.now_us += options_.costs.turn + options_.costs.admit_op * static_cast<double>(admitted) +
                     options_.costs.finish_op * shown_;
    admitted_ = bed_.submitted();
    shown_ = 0;
    if (bed_.Turn(static_cast<policies::Time>(begin_us * 1e3) + kEpochNs)) {
      dispatcher_us_ += clock_.now_us - begin_us;
    } else {
      clock_.now_us = begin_us + kGlanceUs;
    }
    bed_.DrainRecords();
  }

  Prediction Summarise(double us) const {
    const double batches = ended_ - measured_from_;
    Prediction result{.batch_us = us / batches,
                      .idle_us = gpu_.idle_us() / batches,
                      .dispatcher_us = dispatcher_us_ / batches,
                      .library_share = gpu_.library_ops() / (batches * shapes_.size())};
    for (const auto& [ops, count] : gpu_.launches()) result.launches[ops] = count / batches;
    return result;
  }

  static constexpr int kSets = 8;
  static constexpr double kLimitUs = 1e9;
  static constexpr policies::Time kEpochNs = 1'000'000'000;  // time 0 means "never" in places

  const Options& options_;
  const std::vector<GemmShape> shapes_;
  VirtualClock clock_;
  ModelGpu gpu_;
  DispatcherBed bed_;
  double client_free_at_us_ = 0, dispatcher_us_ = 0;
  std::deque<double> on_their_way_us_;  // when batches that the client writes will be in the ring
  int published_ = 0, ended_ = 0, measured_from_ = 0;
  uint64_t admitted_ = 0;
  int shown_ = 0;  // timelines that the dispatcher has not looked at
};

// Microseconds per batch that a result file has for concert, by scenario.
std::map<std::string, double> ReadMeasured(const std::string& path) {
  std::map<std::string, double> measured;
  std::ifstream file(path);
  const nlohmann::json result = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!ValidateResult(result).ok()) return measured;
  for (const nlohmann::json& scenario : result["scenarios"]) {
    const nlohmann::json::json_pointer median("/times_us/concert/p50");
    if (scenario.contains(median)) measured[scenario["name"]] = scenario[median];
  }
  return measured;
}

void PrintRow(const std::string& name, const Prediction& prediction, double measured_us) {
  std::printf("%-36s %8.2f", name.c_str(), prediction.batch_us);
  if (measured_us > 0) {
    std::printf(" %8.2f %5.2f", measured_us, prediction.batch_us / measured_us);
  }
  std::printf(" %5.0f%% %5.0f%% ", 100 * prediction.idle_us / prediction.batch_us,
              100 * prediction.dispatcher_us / prediction.batch_us);
  for (const auto& [ops, per_batch] : prediction.launches) {
    if (per_batch >= 0.02) std::printf(" %.2fx%d", per_batch, ops);
  }
  if (prediction.library_share > 0) {
    std::printf("  (%.0f%% by the library)", 100 * prediction.library_share);
  }
  std::printf("\n");
}

int Run(const Options& options) {
  const auto scenarios = ReadGemmScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) {
    std::cerr << scenarios.status().message() << "\n";
    return 1;
  }
  const std::map<std::string, double> measured = ReadMeasured(options.measured);
  if (!options.measured.empty() && measured.empty()) {
    std::cerr << options.measured << " is not a result of the suite `gemm`\n";
    return 1;
  }
  std::printf("%-36s %8s%s %6s %6s  launches per batch x ops\n", "us per batch", "predicted",
              measured.empty() ? "" : " measured ratio", "idle", "busy");
  std::vector<double> batches_us, errors;
  for (const GemmScenario& scenario : *scenarios) {
    if (!scenario.unsupported.empty()) continue;
    if (!DispatcherBed::Takes(scenario.gemms)) {
      std::printf("%-36s left out: more than %d GEMMs, or one of more than 1 GiB\n",
                  scenario.name.c_str(), static_cast<int>(DispatcherBed::kMaxGemms));
      continue;
    }
    const absl::StatusOr<Prediction> prediction = Rounds(scenario, options).Run();
    if (!prediction.ok()) {
      std::cerr << scenario.name << ": " << prediction.status().message() << "\n";
      return 1;
    }
    const auto found = measured.find(scenario.name);
    PrintRow(scenario.name, *prediction, found == measured.end() ? 0 : found->second);
    batches_us.push_back(prediction->batch_us);
    if (found != measured.end())
      errors.push_back(std::abs(prediction->batch_us / found->second - 1));
  }
  std::printf("geomean %.2f us", GeometricMean(batches_us));
  if (!errors.empty()) std::printf("; off by %.0f %% (median)", 100 * Quantile(errors, 0.5));
  std::printf("\n");
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app{"Predicts how the batches of the suite gemm go round, without a GPU"};
  Options options;
  RoundCosts& costs = options.costs;
  app.add_option("--scenarios", options.scenarios, "Suite file")->check(CLI::ExistingFile);
  app.add_option("--filter", options.filter, "Only scenarios that match (POSIX extended)");
  app.add_option("--measured", options.measured, "A result of the suite to compare with")
      ->check(CLI::ExistingFile);
  app.add_option("--policy", options.policy, "As concertd's");
  app.add_option("--depth", options.depth, "As concertd's")->check(CLI::Range(1, 64));
  app.add_option("--backlog-us", options.backlog_us, "As concertd's")->check(CLI::Range(0, 10000));
  app.add_option("--batches", options.batches, "Of each scenario")->check(CLI::Range(100, 1000000));
  app.add_option("--in-flight", options.in_flight, "Batches at a time")->check(CLI::Range(1, 8));
  const std::pair<const char*, double*> values[] = {
      {"--turn-us", &costs.turn},
      {"--admit-op-us", &costs.admit_op},
      {"--launch-us", &costs.launch},
      {"--launch-op-us", &costs.launch_op},
      {"--finish-op-us", &costs.finish_op},
      {"--group-call-us", &costs.group_call},
      {"--library-call-us", &costs.library_call},
      {"--to-start-us", &costs.to_start},
      {"--to-visible-us", &costs.to_visible},
      {"--submit-batch-us", &costs.submit_batch},
      {"--submit-op-us", &costs.submit_op},
  };
  for (const auto& [name, value] : values) {
    app.add_option(name, *value)->capture_default_str()->group("Costs (struct RoundCosts)");
  }
  CLI11_PARSE(app, argc, argv);
  if (policies::FindPolicy(options.policy) == nullptr) {
    std::cerr << "there is no policy named " << options.policy << "\n";
    return 1;
  }
  return Run(options);
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) { return concert::bench::Main(argc, argv); }
