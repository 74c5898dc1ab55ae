#include "tests/bench/tenant_series.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/bench/result_file.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

using nlohmann::json;

double Round(double value) { return std::round(value * 1000) / 1000; }

// {"p10", "p90"} of what the laps say.
json LapsOf(const std::vector<double>& laps) {
  return {{"p10", Round(Quantile(laps, 0.1))}, {"p90", Round(Quantile(laps, 0.9))}};
}

json Latencies(const std::vector<ClientLatencies>& clients) {
  json latencies = json::array();
  for (const ClientLatencies& client : clients) latencies.push_back(client.Describe());
  return latencies;
}

// The p99 of the clients of the highest priority over their p99 alone: the worst of them.
double HighP99OverSolo(const TenantScenario& scenario, const TenantSeries& crowd,
                       const TenantSeries& alone) {
  int highest = -1;
  for (const auto& client : scenario.clients) highest = std::max(highest, client.priority);
  double worst = 0;
  for (size_t i = 0; i < scenario.clients.size(); ++i) {
    if (scenario.clients[i].priority < highest) continue;
    worst = std::max(worst, crowd.latencies[i].p99() / alone.solo_latencies[i].p99());
  }
  return worst;
}

void DescribeMode(const std::string& mode, const TenantSeries& measured, json& entry) {
  entry["times_us"][mode] = Spread(measured.us_per_gemm);
  entry["throughput_per_s"][mode] = Round(1e6 / Quantile(measured.us_per_gemm, 0.5));
  for (size_t i = 0; i < measured.gemms_per_s.size(); ++i) {
    const std::vector<double>& laps = measured.gemms_per_s[i];
    entry["client_throughput_per_s"][mode].push_back(Round(Quantile(laps, 0.5)));
    entry["client_throughput_laps_per_s"][mode].push_back(LapsOf(laps));
  }
  entry["latency_us"][mode] = Latencies(measured.latencies);
  if (!measured.solo_latencies.empty())
    entry["solo_latency_us"][mode] = Latencies(measured.solo_latencies);
}

json SpeedupsOf(const SeriesByMode& series, const std::vector<std::string>& baselines) {
  json speedups = json::object();
  double best = std::numeric_limits<double>::infinity();
  const std::vector<double> concert = series.at("concert").ClientMedians();
  for (const std::string& rival : baselines) {
    const auto found = series.find(rival);
    if (found == series.end() || !found->second.failure.ok()) continue;
    std::vector<double> ratios = found->second.ClientMedians();
    for (size_t i = 0; i < ratios.size(); ++i) ratios[i] = concert[i] / ratios[i];
    const double speedup = GeometricMean(ratios);
    speedups[rival] = speedup;
    best = std::min(best, speedup);
  }
  if (!speedups.empty()) speedups["best_baseline"] = best;
  return speedups;
}

}  // namespace

void ClientLatencies::AddLap(const std::vector<double>& chains_us) {
  all_.insert(all_.end(), chains_us.begin(), chains_us.end());
  medians_.push_back(Quantile(chains_us, 0.5));
  p99s_.push_back(Quantile(chains_us, 0.99));
}

double ClientLatencies::p99() const { return Quantile(all_, 0.99); }

json ClientLatencies::Describe() const {
  const json medians = LapsOf(medians_), p99s = LapsOf(p99s_);
  return {
      {"p50", Round(Quantile(all_, 0.5))}, {"p99", Round(p99())},    {"p50_p10", medians["p10"]},
      {"p50_p90", medians["p90"]},         {"p99_p10", p99s["p10"]}, {"p99_p90", p99s["p90"]}};
}

void TenantSeries::AddLap(const TenantCrew::Lap& lap) {
  us_per_gemm.push_back(lap.us_per_gemm);
  gemms_per_s.resize(lap.gemms_per_s.size());
  latencies.resize(lap.latencies_us.size());
  for (size_t i = 0; i < lap.gemms_per_s.size(); ++i) {
    gemms_per_s[i].push_back(lap.gemms_per_s[i]);
    latencies[i].AddLap(lap.latencies_us[i]);
  }
}

std::vector<double> TenantSeries::ClientMedians() const {
  std::vector<double> medians;
  for (const std::vector<double>& laps : gemms_per_s) medians.push_back(Quantile(laps, 0.5));
  return medians;
}

json DescribeTenants(const TenantScenario& scenario, const SeriesByMode& series,
                     const std::vector<std::string>& baselines) {
  json entry = {{"name", scenario.name},
                {"class", scenario.clients.size() == 1 ? "alone" : "shared"},
                {"clients", scenario.clients.size()}};
  for (const TenantScenario::Client& client : scenario.clients)
    entry["client_names"].push_back(ClientName(client));
  for (const auto& [mode, measured] : series) {
    if (!measured.failure.ok()) {
      entry["unavailable"].push_back({{"name", mode}, {"why", measured.failure.message()}});
      continue;
    }
    DescribeMode(mode, measured, entry);
    if (!scenario.has_priorities()) continue;
    // Under MPS, too, a client alone is a client that computes itself.
    const TenantSeries& alone =
        measured.solo_latencies.empty() ? series.at(baselines.front()) : measured;
    if (!alone.solo_latencies.empty())
      entry["high_p99_over_solo"][mode] = HighP99OverSolo(scenario, measured, alone);
  }
  entry["speedup_over"] = SpeedupsOf(series, baselines);
  return entry;
}

}  // namespace concert::bench
