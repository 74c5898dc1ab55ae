#include "tests/bench/print_result.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/bench/result_file.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// concert, then the others in order of appearance.
std::vector<std::string> Forms(const json& scenarios) {
  std::vector<std::string> forms = {"concert"};
  for (const json& scenario : scenarios) {
    for (const auto& [form, spread] : scenario["times_us"].items()) {
      if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
    }
  }
  return forms;
}

void PrintSummary(const json& summary, std::ostream& out) {
  const json speedups = summary.value("speedup_over", json::object());
  for (const auto& [form, speedup] : speedups.items()) {
    out << absl::StrFormat("over %-14s geomean %.2fx, worst %.2fx, best %.2fx\n", form,
                           speedup["geomean"].get<double>(), speedup["worst"].get<double>(),
                           speedup["best"].get<double>());
  }
  for (const char* key :
       {"by_class", "isolated_speedup", "isolated_speedup_over_graph", "roofline_share",
        "share_of_ideal", "share_of_bound", "prediction_error", "oracle", "slower_than_serial"}) {
    if (summary.contains(key)) out << key << ": " << summary[key].dump() << "\n";
  }
  if (summary.contains("lost_to_best_baseline")) {
    out << "lost to the best baseline by more than 2 %: " << summary["lost_to_best_baseline"].dump()
        << "\n";
  }
  for (const json& loss : summary.value("client_losses", json::array())) {
    out << absl::StrFormat("loses: %s, %d of %s: %.2fx as fast as %s in %s\n",
                           loss["scenario"].get<std::string>(), loss["clients"].get<int>(),
                           loss["client"].get<std::string>(), loss["speedup"].get<double>(),
                           loss["over"].get<std::string>(), loss["what"].get<std::string>());
  }
  for (const char* list : {"skipped", "failed"}) {
    for (const json& entry : summary.value(list, json::array()))
      out << list << ": " << entry.dump() << "\n";
  }
}

// Of each kind of client in a scenario with priorities: of clients alike the one that has least.
void PrintKept(const json& scenario, std::ostream& out) {
  if (!scenario.contains("high_p99_over_solo") || !scenario.contains("kept_of_alone")) return;
  std::map<std::string, std::vector<size_t>> kinds;
  for (size_t i = 0; i < scenario["client_names"].size(); ++i)
    kinds[scenario["client_names"][i]].push_back(i);
  for (const auto& [name, clients] : kinds) {
    out << absl::StrFormat(
        "%s, %s, of its speed and p99 alone:", scenario["name"].get<std::string>(), name);
    for (const auto& [mode, kept] : scenario["kept_of_alone"].items()) {
      const json& p99s = scenario["p99_over_alone"][mode];
      double least = kept[clients[0]], worst = p99s[clients[0]];
      for (const size_t i : clients) {
        least = std::min(least, kept[i].get<double>());
        worst = std::max(worst, p99s[i].get<double>());
      }
      out << absl::StrFormat(" %s %.2fx and %.2fx;", mode, least, worst);
    }
    out << "\n";
  }
}

}  // namespace

void PrintCaveats(const json& result, std::ostream& out) {
  if (const std::string caveats = Caveats(result); !caveats.empty()) out << caveats << "\n";
}

void PrintComparison(const json& result, std::ostream& out) {
  const std::vector<std::string> forms = Forms(result["scenarios"]);
  out << absl::StrFormat("%-40s", "scenario (median us)");
  for (const std::string& form : forms) out << absl::StrFormat(" %14s", form);
  out << absl::StrFormat(" %8s\n", "x best");
  for (const json& scenario : result["scenarios"]) {
    out << absl::StrFormat("%-40s", scenario["name"].get<std::string>());
    const json& times = scenario["times_us"];
    for (const std::string& form : forms) {
      out << absl::StrFormat(
          " %14s",
          times.contains(form) ? absl::StrFormat("%.2f", times[form]["p50"].get<double>()) : "-");
    }
    const json speedups = scenario.value("speedup_over", json::object());
    const json best = speedups.value("best_baseline", json());
    out << absl::StrFormat(" %8s\n",
                           best.is_null() ? "-" : absl::StrFormat("%.2f", best.get<double>()));
  }
  for (const json& scenario : result["scenarios"]) {
    PrintKept(scenario, out);
    for (const json& mode : scenario.value("unavailable", json::array())) {
      out << absl::StrFormat("%s could not run %s: %s\n", mode["name"].get<std::string>(),
                             scenario["name"].get<std::string>(), mode["why"].get<std::string>());
    }
  }
  PrintSummary(result["summary"], out);
}

}  // namespace concert::bench
