#include "tests/bench/compare_results.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/bench/result_file.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// Rooflines of one set in two files differ by rounding only.
constexpr double kSameBound = 0.001;

// A time and where its rounds lie; low == high: one round, or a file that does not say.
struct Range {
  double middle = 0, low = 0, high = 0;
  bool has_scatter() const { return low < high; }
};

Range operator/(const Range& a, const Range& b) {
  return {a.middle / b.middle, a.low / b.high, a.high / b.low};
}

bool Apart(const Range& a, const Range& b) { return a.high < b.low || b.high < a.low; }

// concert's time of one kind and those of doing without it.
struct Measured {
  Range concert;
  std::map<std::string, Range> baselines;

  std::optional<Range> Speedup() const {
    const auto best = std::min_element(
        baselines.begin(), baselines.end(),
        [](const auto& a, const auto& b) { return a.second.middle < b.second.middle; });
    if (best == baselines.end()) return std::nullopt;
    return best->second / concert;
  }
};
using TimesByKind = std::map<std::string, Measured>;

Range RangeOf(const json& spread) {
  const double p50 = spread["p50"];
  return {p50, spread.value("p10", p50), spread.value("p90", p50)};
}

// Old files do not say who the baselines are.
bool IsBaseline(const json& header, const std::string& form) {
  if (header.contains("baselines")) {
    const json& known = header["baselines"];
    return std::find(known.begin(), known.end(), form) != known.end();
  }
  return form != "concert" && form != "goldyloc" && !absl::StartsWith(form, "isolated") &&
         !absl::StartsWith(form, "forced_");
}

void TakeTimes(const json& header, const json& scenario, TimesByKind& kinds) {
  for (const auto& [form, spread] : scenario["times_us"].items()) {
    if (form == "concert") kinds["together"].concert = RangeOf(spread);
    if (IsBaseline(header, form)) kinds["together"].baselines[form] = RangeOf(spread);
    if (form == "isolated") kinds["isolated"].concert = RangeOf(spread);
    if (absl::StartsWith(form, "isolated_")) kinds["isolated"].baselines[form] = RangeOf(spread);
  }
}

// Clients may have GEMMs of unequal size, whose sum says little: each client's own time counts
// alike. They scatter as the sum does.
void TakeClients(const json& scenario, TimesByKind& kinds) {
  const json rates = scenario.value("client_throughput_per_s", json::object());
  const auto weigh = [&](const std::string& mode, Range& range) {
    if (!rates.contains(mode)) return;
    const double middle = 1e6 / GeometricMean(rates[mode].get<std::vector<double>>());
    const double scale = middle / range.middle;
    range = {middle, range.low * scale, range.high * scale};
  };
  Measured& together = kinds["together"];
  weigh("concert", together.concert);
  for (auto& [mode, range] : together.baselines) weigh(mode, range);
}

void TakeOverhead(const json& scenario, TimesByKind& kinds) {
  for (const char* quantile : {"p50", "p99"}) {
    const double ring = scenario["ring_us"][quantile], local = scenario["local_us"][quantile];
    kinds[quantile] = {{ring, ring, ring}, {{"local", {local, local, local}}}};
  }
}

TimesByKind KindsOf(const json& result, const json& scenario) {
  TimesByKind kinds;
  if (result["suite"] == "overhead") {
    TakeOverhead(scenario, kinds);
  } else {
    TakeTimes(result["header"], scenario, kinds);
    if (scenario.contains("client_throughput_per_s")) TakeClients(scenario, kinds);
  }
  std::erase_if(kinds, [](const auto& kind) { return kind.second.concert.middle <= 0; });
  return kinds;
}

// Why two scenarios of one name are not the same; empty: they are, as far as both files say.
std::string Difference(const json& a, const json& b) {
  for (const char* key : {"clients", "client_names", "class", "gemms"}) {
    if (a.contains(key) && b.contains(key) && a[key] != b[key])
      return absl::StrCat(key, " was ", a[key].dump(), " and is ", b[key].dump());
  }
  if (!a.contains("bound_us") || !b.contains("bound_us")) return "";
  const double ratio = b["bound_us"].get<double>() / a["bound_us"].get<double>();
  if (std::abs(ratio - 1) < kSameBound) return "";
  return absl::StrCat("bound_us was ", a["bound_us"].dump(), " and is ", b["bound_us"].dump());
}

std::string RoundsOf(const json& header) {
  const json rounds = header.value("laps", header["rounds"]);
  return absl::StrCat(rounds.dump(), header.contains("laps") ? " laps" : " rounds");
}

json Warnings(const json& old_result, const json& new_result) {
  const json &a = old_result["header"], &b = new_result["header"];
  json warnings = json::array();
  std::vector<std::string> unknown;  // older files say less
  for (const char* key : {"gpu", "gpu_id", "gpus", "clocks", "cpu", "driver", "cuda", "cublas",
                          "nccl", "policy", "config", "baselines", "baseline_path"}) {
    const json was = a.value(key, json()), is = b.value(key, json());
    if (was == is) continue;
    if (was.is_null() || is.is_null()) {
      unknown.push_back(key);
    } else {
      warnings.push_back(absl::StrCat(key, " was ", was.dump(), " and is ", is.dump()));
    }
  }
  if (!unknown.empty())
    warnings.push_back(
        absl::StrCat("one of the two does not say its ", absl::StrJoin(unknown, ", ")));
  for (const auto& [name, result] :
       {std::pair("old", &old_result), std::pair("new", &new_result)}) {
    if (!IsQuickLook(*result)) continue;
    warnings.push_back(
        absl::StrCat("the ", name, " one is a quick look of ", RoundsOf((*result)["header"])));
  }
  return warnings;
}

// Geomean, worst and who of `ratios` by scenario; `sign` 1 where more is better.
json Summarise(const std::map<std::string, double>& ratios, bool more_is_better) {
  std::vector<double> values;
  for (const auto& [name, ratio] : ratios) values.push_back(ratio);
  const auto [least, most] =
      std::minmax_element(ratios.begin(), ratios.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto worst = more_is_better ? least : most;
  return {{"geomean", GeometricMean(values)},
          {"worst", worst->second},
          {"worst_scenario", worst->first}};
}

// Collects what CompareResults returns.
class Comparer {
 public:
  void Add(const std::string& name, const TimesByKind& was, const TimesByKind& is) {
    for (const auto& [kind, before] : was) {
      const auto after = is.find(kind);
      if (after != is.end()) AddKind(name, kind, before, after->second);
    }
  }

  json Changes() const { return changes_; }
  json Baselines() const {
    json geomeans = json::object();
    for (const auto& [form, ratios] : drifts_) geomeans[form] = GeometricMean(ratios);
    return geomeans;
  }
  json Summary() const {
    json summary = json::object();
    for (const auto& [kind, ratios] : times_) {
      summary[kind]["time"] = Summarise(ratios, /*more_is_better=*/false);
      for (const char* way : {"faster", "slower"}) {
        const auto names = changed_.find({kind, way});
        summary[kind][way] = names == changed_.end() ? std::vector<std::string>() : names->second;
      }
    }
    for (const auto& [kind, ratios] : speedups_)
      summary[kind]["speedup"] = Summarise(ratios, /*more_is_better=*/true);
    return summary;
  }

 private:
  void AddKind(const std::string& name, const std::string& kind, Measured was, Measured is) {
    // A baseline that only one of them has would move the best of them.
    const auto keep_common = [](Measured& one, const Measured& other) {
      std::erase_if(one.baselines,
                    [&](const auto& entry) { return !other.baselines.contains(entry.first); });
    };
    keep_common(was, is);
    keep_common(is, was);
    const double time = is.concert.middle / was.concert.middle;
    json change = {{"name", name}, {"kind", kind}, {"time", time}};
    times_[kind][name] = time;
    if (was.concert.has_scatter() && is.concert.has_scatter()) {
      const bool changed = Apart(was.concert, is.concert);
      change["time_changed"] = changed;
      if (changed) changed_[{kind, time < 1 ? "faster" : "slower"}].push_back(name);
    }
    const std::optional<Range> before = was.Speedup(), after = is.Speedup();
    if (before && after) {
      const double ratio = after->middle / before->middle;
      change.update(
          {{"old_speedup", before->middle}, {"new_speedup", after->middle}, {"speedup", ratio}});
      speedups_[kind][name] = ratio;
      if (before->has_scatter() && after->has_scatter())
        change["speedup_changed"] = Apart(*before, *after);
    }
    for (const auto& [form, range] : was.baselines)
      drifts_[form].push_back(is.baselines.at(form).middle / range.middle);
    changes_.push_back(std::move(change));
  }

  json changes_ = json::array();
  std::map<std::string, std::map<std::string, double>> times_, speedups_;  // [kind][scenario]
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> changed_;
  std::map<std::string, std::vector<double>> drifts_;
};

json Identity(const json& header) {
  return {{"commit", header["commit"]}, {"date", header["date"]}, {"rounds", RoundsOf(header)}};
}

}  // namespace

absl::StatusOr<json> CompareResults(const json& old_result, const json& new_result) {
  for (const std::string key : {"suite", "device"}) {
    const json& was = key == "suite" ? old_result[key] : old_result["header"][key];
    const json& is = key == "suite" ? new_result[key] : new_result["header"][key];
    if (was != is) {
      return absl::InvalidArgumentError(absl::StrCat(key, " was ", was.dump(), " and is ",
                                                     is.dump(),
                                                     ": results of different kinds say nothing "
                                                     "about each other"));
    }
  }
  std::map<std::string, const json*> was;
  for (const json& scenario : old_result["scenarios"]) was[scenario["name"]] = &scenario;

  Comparer comparer;
  json only_in_new = json::array(), only_in_old = json::array(), not_the_same = json::array();
  for (const json& scenario : new_result["scenarios"]) {
    const std::string name = scenario["name"];
    const auto found = was.find(name);
    if (found == was.end()) {
      only_in_new.push_back(name);
      continue;
    }
    const json& before = *found->second;
    was.erase(found);
    if (const std::string why = Difference(before, scenario); !why.empty()) {
      not_the_same.push_back({{"name", name}, {"why", why}});
    } else {
      comparer.Add(name, KindsOf(old_result, before), KindsOf(new_result, scenario));
    }
  }
  for (const auto& [name, scenario] : was) only_in_old.push_back(name);
  if (comparer.Changes().empty())
    return absl::NotFoundError("no scenario of the one is in the other");
  return json{{"suite", new_result["suite"]},
              {"old", Identity(old_result["header"])},
              {"new", Identity(new_result["header"])},
              {"warnings", Warnings(old_result, new_result)},
              {"baselines", comparer.Baselines()},
              {"changes", comparer.Changes()},
              {"summary", comparer.Summary()},
              {"only_in_old", only_in_old},
              {"only_in_new", only_in_new},
              {"not_the_same", not_the_same}};
}

}  // namespace concert::bench
