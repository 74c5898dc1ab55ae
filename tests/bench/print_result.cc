#include "tests/bench/print_result.h"

#include <algorithm>
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
    for (const json& mode : scenario.value("unavailable", json::array())) {
      out << absl::StrFormat("%s could not run %s: %s\n", mode["name"].get<std::string>(),
                             scenario["name"].get<std::string>(), mode["why"].get<std::string>());
    }
  }
  PrintSummary(result["summary"], out);
}

}  // namespace concert::bench
