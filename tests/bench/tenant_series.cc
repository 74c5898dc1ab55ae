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
double HighP99OverSolo(const TenantGroup& group, const TenantSeries& crowd,
                       const TenantSeries& alone) {
  int highest = -1;
  for (const auto& client : group.clients) highest = std::max(highest, client.priority);
  double worst = 0;
  for (size_t i = 0; i < group.clients.size(); ++i) {
    if (group.clients[i].priority < highest) continue;
    worst = std::max(worst, crowd.latencies[i].p99() / alone.solo_latencies[i].p99());
  }
  return worst;
}

void DescribeMode(const std::string& mode, const TenantSeries& measured, json& entry) {
  entry["times_us"][mode] = Spread(measured.us_per_unit);
  entry["throughput_per_s"][mode] = Round(1e6 / Quantile(measured.us_per_unit, 0.5));
  for (size_t i = 0; i < measured.units_per_s.size(); ++i) {
    const std::vector<double>& laps = measured.units_per_s[i];
    entry["client_throughput_per_s"][mode].push_back(Round(Quantile(laps, 0.5)));
    entry["client_throughput_laps_per_s"][mode].push_back(LapsOf(laps));
  }
  entry["latency_us"][mode] = Latencies(measured.latencies);
  if (measured.solo_latencies.empty()) return;
  entry["solo_latency_us"][mode] = Latencies(measured.solo_latencies);
  for (const double rate : measured.solo_units_per_s)
    entry["solo_throughput_per_s"][mode].push_back(Round(rate));
}

// What is left to each client beside the others.
void CompareWithAlone(const std::string& mode, const TenantSeries& crowd, const TenantSeries& alone,
                      json& entry) {
  const std::vector<double> rates = crowd.ClientMedians();
  for (size_t i = 0; i < rates.size(); ++i) {
    entry["kept_of_alone"][mode].push_back(Round(rates[i] / alone.solo_units_per_s[i]));
    entry["p99_over_alone"][mode].push_back(
        Round(crowd.latencies[i].p99() / alone.solo_latencies[i].p99()));
  }
}

json SpeedupsOf(const SeriesByMode& series, const Rivals& rivals) {
  json speedups = json::object();
  const std::vector<double> concert = series.at("concert").ClientMedians();
  const auto add = [&](const std::vector<std::string>& names) {
    double least = std::numeric_limits<double>::infinity();
    for (const std::string& rival : names) {
      const auto found = series.find(rival);
      if (found == series.end() || !found->second.failure.ok()) continue;
      std::vector<double> ratios = found->second.ClientMedians();
      for (size_t i = 0; i < ratios.size(); ++i) ratios[i] = concert[i] / ratios[i];
      speedups[rival] = GeometricMean(ratios);
      least = std::min(least, speedups[rival].get<double>());
    }
    return least;
  };
  const double least = add(rivals.baselines);
  if (!speedups.empty()) speedups["best_baseline"] = least;
  add(rivals.policies);
  return speedups;
}

// Alone a client of MPS is a client that computes itself: what the first baseline measured.
const TenantSeries* AloneOf(const TenantSeries& measured, const SeriesByMode& series,
                            const Rivals& rivals) {
  if (!measured.solo_latencies.empty()) return &measured;
  if (rivals.baselines.empty()) return nullptr;
  const auto first = series.find(rivals.baselines.front());
  return first == series.end() || first->second.solo_latencies.empty() ? nullptr : &first->second;
}

}  // namespace

void ClientLatencies::AddLap(const std::vector<double>& runs_us) {
  all_.insert(all_.end(), runs_us.begin(), runs_us.end());
  medians_.push_back(Quantile(runs_us, 0.5));
  p99s_.push_back(Quantile(runs_us, 0.99));
}

double ClientLatencies::p99() const { return Quantile(all_, 0.99); }

json ClientLatencies::Describe() const {
  const json medians = LapsOf(medians_), p99s = LapsOf(p99s_);
  return {
      {"p50", Round(Quantile(all_, 0.5))}, {"p99", Round(p99())},    {"p50_p10", medians["p10"]},
      {"p50_p90", medians["p90"]},         {"p99_p10", p99s["p10"]}, {"p99_p90", p99s["p90"]}};
}

void TenantSeries::AddLap(const TenantCrew::Lap& lap) {
  us_per_unit.push_back(lap.us_per_unit);
  units_per_s.resize(lap.units_per_s.size());
  latencies.resize(lap.latencies_us.size());
  for (size_t i = 0; i < lap.units_per_s.size(); ++i) {
    units_per_s[i].push_back(lap.units_per_s[i]);
    latencies[i].AddLap(lap.latencies_us[i]);
  }
}

std::vector<double> TenantSeries::ClientMedians() const {
  std::vector<double> medians;
  for (const std::vector<double>& laps : units_per_s) medians.push_back(Quantile(laps, 0.5));
  return medians;
}

void TenantSeries::AddErrors(const std::vector<double>& of_clients) {
  errors.resize(of_clients.size());
  for (size_t i = 0; i < errors.size(); ++i) errors[i] = std::max(errors[i], of_clients[i]);
}

double TenantSeries::worst_error() const {
  return errors.empty() ? 0 : *std::ranges::max_element(errors);
}

json DescribeTenants(const TenantGroup& group, const SeriesByMode& series, const Rivals& rivals) {
  json entry = {{"name", group.scenario},
                {"class", group.clients.size() == 1 ? "alone" : "shared"},
                {"clients", group.clients.size()}};
  for (const TenantClient& client : group.clients) entry["client_names"].push_back(client.name);
  for (const auto& [mode, measured] : series) {
    if (!measured.failure.ok()) {
      entry["unavailable"].push_back({{"name", mode}, {"why", measured.failure.message()}});
      continue;
    }
    DescribeMode(mode, measured, entry);
    const TenantSeries* const alone = AloneOf(measured, series, rivals);
    if (alone != nullptr) CompareWithAlone(mode, measured, *alone, entry);
    if (group.has_priorities() && alone != nullptr)
      entry["high_p99_over_solo"][mode] = HighP99OverSolo(group, measured, *alone);
  }
  entry["speedup_over"] = SpeedupsOf(series, rivals);
  return entry;
}

}  // namespace concert::bench
