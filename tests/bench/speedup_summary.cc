#include "tests/bench/speedup_summary.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// What a launch costs at best, even from a graph.
constexpr double kLaunchUs = 2;

struct Ratio {
  double value;
  std::string scenario;
};

json Summarise(const std::vector<Ratio>& ratios) {
  std::vector<double> values;
  for (const Ratio& ratio : ratios) values.push_back(ratio.value);
  const auto [worst, best] =
      std::minmax_element(ratios.begin(), ratios.end(),
                          [](const Ratio& a, const Ratio& b) { return a.value < b.value; });
  return {{"geomean", GeometricMean(values)},
          {"worst", worst->value},
          {"worst_scenario", worst->scenario},
          {"best", best->value}};
}

double Median(const json& times_us, const std::string& form) { return times_us[form]["p50"]; }

// Of the clients alike (indices into the scenario's lists), over one rival.
json ClientSpeedups(const json& scenario, const std::vector<size_t>& alike,
                    const std::string& rival) {
  std::vector<double> rates, tails;
  for (const size_t i : alike) {
    const json& rate = scenario["client_throughput_per_s"];
    const json& latency = scenario["latency_us"];
    rates.push_back(rate["concert"][i].get<double>() / rate[rival][i].get<double>());
    tails.push_back(latency[rival][i]["p99"].get<double>() /
                    latency["concert"][i]["p99"].get<double>());
  }
  return {{"throughput", GeometricMean(rates)}, {"p99", GeometricMean(tails)}};
}

void AddClientLosses(const json& scenario, const Rivals& rivals, double tolerance,
                     std::vector<json>& losses) {
  std::map<std::string, std::vector<size_t>> kinds;
  for (size_t i = 0; i < scenario["client_names"].size(); ++i)
    kinds[scenario["client_names"][i]].push_back(i);
  for (const std::string& rival : rivals.baselines) {
    if (!scenario["times_us"].contains(rival)) continue;
    for (const auto& [name, alike] : kinds) {
      const json speedups = ClientSpeedups(scenario, alike, rival);
      for (const auto& [what, speedup] : speedups.items()) {
        if (speedup.get<double>() * (1 + tolerance) >= 1) continue;
        losses.push_back({{"scenario", scenario["name"]},
                          {"client", name},
                          {"clients", alike.size()},
                          {"over", rival},
                          {"what", what},
                          {"speedup", speedup}});
      }
    }
  }
}

}  // namespace

json SpeedupOver(const json& times_us, const Rivals& rivals) {
  json speedups = json::object();
  if (!times_us.contains("concert")) return speedups;
  const double concert_us = Median(times_us, "concert");
  double best_us = std::numeric_limits<double>::infinity();
  for (const std::string& form : rivals.baselines) {
    if (!times_us.contains(form)) continue;
    speedups[form] = Median(times_us, form) / concert_us;
    best_us = std::min(best_us, Median(times_us, form));
  }
  if (!speedups.empty()) speedups["best_baseline"] = best_us / concert_us;
  for (const std::string& form : rivals.policies) {
    if (times_us.contains(form)) speedups[form] = Median(times_us, form) / concert_us;
  }
  return speedups;
}

json OracleSummary(const json& scenarios) {
  int measured = 0, within = 0;
  double loss = 0;
  for (const json& scenario : scenarios) {
    if (!scenario.contains("within_3_percent")) continue;
    ++measured;
    within += scenario["within_3_percent"].get<bool>() ? 1 : 0;
    loss += Median(scenario["times_us"], "concert") / scenario["oracle"]["p50"].get<double>() - 1;
  }
  if (measured == 0) return nullptr;
  return {{"scenarios", measured}, {"within_3_percent", within}, {"mean_loss", loss / measured}};
}

json SpeedupSummary(const json& scenarios, const Rivals& rivals, double tolerance) {
  std::map<std::string, std::vector<Ratio>> speedups;                                // by rival
  std::map<std::string, std::map<std::string, std::vector<double>>> class_speedups;  // and class
  json lost = json::array();
  for (const json& scenario : scenarios) {
    const json over = scenario.contains("speedup_over") ? scenario["speedup_over"]
                                                        : SpeedupOver(scenario["times_us"], rivals);
    const std::string name = scenario["name"], group = scenario.value("class", "");
    for (const auto& [rival, ratio] : over.items()) {
      speedups[rival].push_back({ratio, name});
      if (!group.empty()) class_speedups[group][rival].push_back(ratio);
    }
    if (over.value("best_baseline", 1.0) * (1 + tolerance) < 1) lost.push_back(name);
  }
  json summary = {
      {"scenarios", scenarios.size()}, {"lost_to_best_baseline", lost}, {"tolerance", tolerance}};
  for (const auto& [rival, ratios] : speedups) summary["speedup_over"][rival] = Summarise(ratios);
  for (const auto& [group, rows] : class_speedups) {
    for (const auto& [rival, ratios] : rows)
      summary["by_class"][group][rival] = GeometricMean(ratios);
  }
  return summary;
}

json TenantsSummary(const json& scenarios, const Rivals& rivals, double tolerance) {
  json summary = SpeedupSummary(scenarios, rivals, tolerance);
  std::vector<json> losses;
  for (const json& scenario : scenarios) AddClientLosses(scenario, rivals, tolerance, losses);
  std::stable_sort(losses.begin(), losses.end(), [](const json& a, const json& b) {
    return a["speedup"].get<double>() < b["speedup"].get<double>();
  });
  summary["client_losses"] = losses;
  return summary;
}

json GemmSummary(const json& scenarios, const Rivals& rivals, double tolerance) {
  json summary = SpeedupSummary(scenarios, rivals, tolerance);
  std::vector<double> roofline_shares, prediction_errors;
  std::vector<Ratio> isolated, isolated_graph;
  for (const json& scenario : scenarios) {
    const json& times_us = scenario["times_us"];
    if (times_us.contains("concert") && scenario.contains("bound_us")) {
      roofline_shares.push_back((scenario["bound_us"].get<double>() + kLaunchUs) /
                                Median(times_us, "concert"));
    }
    for (const auto& [rival, ratios] :
         {std::pair("isolated_local", &isolated), std::pair("isolated_graph", &isolated_graph)}) {
      if (!times_us.contains("isolated") || !times_us.contains(rival)) continue;
      ratios->push_back({Median(times_us, rival) / Median(times_us, "isolated"), scenario["name"]});
    }
    if (scenario.contains("prediction_error"))
      prediction_errors.push_back(scenario["prediction_error"]);
  }
  if (!roofline_shares.empty()) summary["roofline_share"] = GeometricMean(roofline_shares);
  if (!isolated.empty()) summary["isolated_speedup"] = Summarise(isolated);
  if (!isolated_graph.empty()) summary["isolated_speedup_over_graph"] = Summarise(isolated_graph);
  if (!prediction_errors.empty()) summary["prediction_error"] = Quantile(prediction_errors, 0.5);
  if (const json oracle = OracleSummary(scenarios); !oracle.is_null()) summary["oracle"] = oracle;
  return summary;
}

}  // namespace concert::bench
