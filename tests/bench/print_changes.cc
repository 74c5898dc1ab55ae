#include <ostream>
#include <string>

#include "absl/strings/str_format.h"
#include "tests/bench/compare_results.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// "1.034*": beyond the scatter; "1.034?": nobody knows how far it scatters.
std::string RatioText(const json& change, const std::string& key) {
  if (!change.contains(key)) return "-";
  const json changed = change.value(key + "_changed", json());
  const char* const mark = changed.is_null() ? "?" : changed.get<bool>() ? "*" : " ";
  return absl::StrFormat("%.3f%s", change[key].get<double>(), mark);
}

void PrintKind(const std::string& kind, const json& summary, std::ostream& out) {
  for (const char* what : {"time", "speedup"}) {
    if (!summary.contains(what)) continue;
    const json& ratios = summary[what];
    out << absl::StrFormat("%s, %s NEW/OLD: geomean %.3f, worst %.3f (%s)\n", kind, what,
                           ratios["geomean"].get<double>(), ratios["worst"].get<double>(),
                           ratios["worst_scenario"].get<std::string>());
  }
  for (const char* way : {"faster", "slower"})
    out << kind << ", " << way << " beyond the scatter of both: " << summary[way].dump() << "\n";
}

}  // namespace

void PrintChanges(const json& comparison, std::ostream& out) {
  for (const char* which : {"old", "new"}) {
    const json& file = comparison[which];
    out << which << ": commit " << file["commit"].get<std::string>() << ", "
        << file["date"].get<std::string>() << ", " << file["rounds"].get<std::string>() << "\n";
  }
  for (const json& warning : comparison["warnings"])
    out << "WARNING: " << warning.get<std::string>() << "\n";
  out << absl::StrFormat("\n%-34s %-9s %9s %9s %9s %9s\n", "scenario", "kind", "time", "old x",
                         "new x", "speedup");
  for (const json& change : comparison["changes"]) {
    const auto speedup = [&](const char* key) {
      return change.contains(key) ? absl::StrFormat("%.2f", change[key].get<double>()) : "-";
    };
    out << absl::StrFormat("%-34s %-9s %9s %9s %9s %9s\n", change["name"].get<std::string>(),
                           change["kind"].get<std::string>(), RatioText(change, "time"),
                           speedup("old_speedup"), speedup("new_speedup"),
                           RatioText(change, "speedup"));
  }
  out << "time: NEW/OLD of concert's own, below 1 is faster. x: over the best baseline. speedup:"
         " NEW/OLD of that,\nabove 1 is better. *: the ranges p10..p90 of the two keep apart; ?: "
         "one"
         " has no scatter.\n\n";
  for (const auto& [kind, summary] : comparison["summary"].items()) PrintKind(kind, summary, out);
  out << "the baselines' own time NEW/OLD (the machine's doing, or the libraries'):";
  for (const auto& [form, ratio] : comparison["baselines"].items())
    out << absl::StrFormat(" %s %.3f", form, ratio.get<double>());
  out << "\n";
  for (const char* list : {"only_in_old", "only_in_new", "not_the_same"}) {
    if (!comparison[list].empty()) out << list << ": " << comparison[list].dump() << "\n";
  }
}

}  // namespace concert::bench
