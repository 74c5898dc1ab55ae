#include "tests/bench/c3_result.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/bench/result_file.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

using nlohmann::json;

constexpr double kOracleTolerance = 1.03;

double P50(const json& times_us, const std::string& name) { return times_us[name]["p50"]; }

// The spread of whoever is fastest, null for nobody; and everybody's medians.
std::pair<json, json> FastestAlone(const Samples& samples) {
  json fastest, medians = json::object();
  for (const auto& [name, samples_us] : samples) {
    if (samples_us.empty()) continue;
    json spread = Spread(samples_us);
    medians[name] = spread["p50"];
    if (fastest.is_null() || spread["p50"] < fastest["p50"]) fastest = std::move(spread);
  }
  return {fastest, medians};
}

// Of each contender. Empty where there is nothing to gain.
json SharesOf(const json& times_us, const Samples& together, double least_us) {
  json shares = json::object();
  if (!times_us.contains("serial")) return shares;
  const double serial_us = P50(times_us, "serial");
  if (serial_us <= least_us) return shares;
  for (const auto& [name, samples] : together) {
    if (times_us.contains(name) && name != "serial")
      shares[name] = (serial_us - P50(times_us, name)) / (serial_us - least_us);
  }
  return shares;
}

json FastestOf(const json& times_us, const std::vector<std::string>& names) {
  json fastest;
  for (const std::string& name : names) {
    if (!times_us.contains(name)) continue;
    if (fastest.is_null() || times_us[name]["p50"] < fastest["p50"])
      fastest = {{"form", name}, {"p50", times_us[name]["p50"]}};
  }
  return fastest;
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of the scenarios' own shares under `key`, by contender.
json MeanShares(const json& scenarios, const char* key) {
  std::map<std::string, std::vector<double>> all;
  std::map<std::string, std::map<std::string, std::vector<double>>> by_class;
  for (const json& scenario : scenarios) {
    const json shares = scenario.value(key, json::object());
    for (const auto& [name, share] : shares.items()) {
      all[name].push_back(share);
      by_class[name][scenario["class"]].push_back(share);
    }
  }
  json means = json::object();
  for (const auto& [name, shares] : all) {
    means[name]["mean"] = Mean(shares);
    for (const auto& [group, own] : by_class[name]) means[name]["by_class"][group] = Mean(own);
  }
  return means;
}

}  // namespace

json DescribeOverlap(const OverlapScenario& scenario, const OverlapSamples& samples,
                     const Rivals& rivals, const std::vector<std::string>& forms,
                     double memory_bytes_per_s) {
  const CollectiveShape& shape = scenario.collective;
  json entry = {{"name", scenario.name},
                {"class", absl::StrCat(KindName(shape.kind), " on ", shape.ranks, " GPUs")},
                {"gpus", shape.ranks}};
  json& times_us = entry["times_us"] = json::object();
  for (const auto& [name, samples_us] : samples.together) {
    if (!samples_us.empty()) times_us[name] = Spread(samples_us);
  }
  std::vector<std::string> contest = forms;
  contest.push_back("concert");
  if (forms.empty()) {
    for (const auto& [name, times] : times_us.items()) contest.push_back(name);
  }
  entry["oracle"] = FastestOf(times_us, contest);
  if (!forms.empty() && times_us.contains("concert")) {
    entry["within_3_percent"] =
        P50(times_us, "concert") <= kOracleTolerance * entry["oracle"]["p50"].get<double>();
  }
  entry["speedup_over"] = SpeedupOver(times_us, rivals);
  const auto [gemm, gemms] = FastestAlone(samples.gemm_alone);
  const auto [collective, collectives] = FastestAlone(samples.collective_alone);
  if (gemm.is_null() || collective.is_null()) return entry;
  times_us["gemm_alone"] = gemm;
  times_us["collective_alone"] = collective;
  entry["alone_us"] = {{"gemm", gemms}, {"collective", collectives}};
  const double ideal_us = std::max(gemm["p50"].get<double>(), collective["p50"].get<double>());
  const double bytes = scenario.repeat * scenario.gemm.bytes() + shape.hbm_bytes();
  const double bound_us = std::max(ideal_us, 1e6 * bytes / memory_bytes_per_s);
  entry["ideal_us"] = ideal_us;
  entry["bound_us"] = bound_us;
  entry["share_of_ideal"] = SharesOf(times_us, samples.together, ideal_us);
  entry["share_of_bound"] = SharesOf(times_us, samples.together, bound_us);
  return entry;
}

json DescribeOverlapPlans(const std::vector<LoggedPlan>& plans, int repeat, double actual_us) {
  double gemms_us = 0, collectives_us = 0;
  uint32_t gemms = 0, collectives = 0;
  bool predicted = true;
  std::string plan, collective_plan;
  for (const LoggedPlan& logged : plans) {
    if (logged.gpu != 0) continue;
    predicted &= logged.predicted_us > 0;
    const bool gemm = logged.kind == "gemm";
    (gemm ? gemms_us : collectives_us) += logged.predicted_us;
    (gemm ? gemms : collectives) += logged.ops;
    std::string& text = gemm ? plan : collective_plan;
    if (text.empty()) text = logged.text;
  }
  json description = json::object();
  if (!plan.empty()) description["plan"] = plan;
  if (!collective_plan.empty()) description["collective_plan"] = collective_plan;
  if (!predicted || gemms == 0 || collectives == 0) return description;
  const double predicted_us = std::max(gemms_us * repeat / gemms, collectives_us / collectives);
  description["predicted_us"] = predicted_us;
  description["prediction_error"] = std::abs(predicted_us / actual_us - 1);
  return description;
}

json OverlapSummary(const json& scenarios, const Rivals& rivals, double tolerance) {
  json summary = SpeedupSummary(scenarios, rivals, tolerance);
  for (const char* key : {"share_of_ideal", "share_of_bound"})
    summary[key] = MeanShares(scenarios, key);
  summary["slower_than_serial"] = json::array();
  std::vector<double> errors;
  for (const json& scenario : scenarios) {
    const json speedups = scenario.value("speedup_over", json::object());
    if (speedups.value("serial", 1.0) * (1 + tolerance) < 1)
      summary["slower_than_serial"].push_back(scenario["name"]);
    if (scenario.contains("prediction_error")) errors.push_back(scenario["prediction_error"]);
  }
  if (!errors.empty()) summary["prediction_error"] = Quantile(errors, 0.5);
  if (const json oracle = OracleSummary(scenarios); !oracle.is_null()) summary["oracle"] = oracle;
  return summary;
}

}  // namespace concert::bench
