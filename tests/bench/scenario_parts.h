// What the readers of all suite files share. Every error is a sentence that names the file, the
// scenario, the key, its value and what is allowed.
#ifndef CONCERT_TESTS_BENCH_SCENARIO_PARTS_H_
#define CONCERT_TESTS_BENCH_SCENARIO_PARTS_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace concert::bench {

constexpr int64_t kMaxClients = 64;  // processes of a scenario

// From 1 to `max`. `missing`, if it is not 0, is what an absent key stands for.
absl::StatusOr<int64_t> Integer(const nlohmann::json& object, const char* key, int64_t max,
                                int64_t missing, const std::string& where);
absl::Status RejectUnknownKeys(const nlohmann::json& object, const std::set<std::string>& known,
                               const std::string& where);
// The entry's name, which `where` then carries, too.
absl::StatusOr<std::string> NameOf(const nlohmann::json& entry, std::string& where);
// "low", "normal" or "high" as -1, 0 or 1; `whose` is for the error.
absl::StatusOr<int> PriorityFrom(const nlohmann::json& value, const std::string& whose);
absl::StatusOr<std::string> ReadSuiteFile(const std::string& path);

// Those that `filter` (POSIX extended; empty: all) finds. INVALID_ARGUMENT for a filter that is no
// regular expression, NOT_FOUND, naming `where` they are from, if it finds none.
absl::StatusOr<std::set<std::string>> MatchingNames(const std::vector<std::string>& names,
                                                    const std::string& where,
                                                    const std::string& filter);

// The scenarios of a suite file, each parsed by `parse_one(entry, where)`.
template <typename Scenario, typename ParseOne>
absl::StatusOr<std::vector<Scenario>> ParseSuite(std::string_view text, const std::string& suite,
                                                 const std::string& path,
                                                 const ParseOne& parse_one) {
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded())
    return absl::InvalidArgumentError(absl::StrCat(path, " is not valid JSON"));
  if (!file.is_object() || file.value("suite", nlohmann::json()) != suite ||
      !file.contains("scenarios") || !file["scenarios"].is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no ", suite,
                                                   " suite; it must be {\"suite\": \"", suite,
                                                   "\", \"scenarios\": [...]}"));
  }
  std::vector<Scenario> scenarios;
  std::set<std::string> names;
  for (size_t i = 0; i < file["scenarios"].size(); ++i) {
    absl::StatusOr<Scenario> scenario =
        parse_one(file["scenarios"][i], absl::StrCat(path, ": scenario ", i));
    if (!scenario.ok()) return scenario.status();
    if (!names.insert(scenario->name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": two scenarios are named '", scenario->name, "'"));
    }
    scenarios.push_back(*std::move(scenario));
  }
  return scenarios;
}

// Those of `scenarios` whose names match.
template <typename Scenario>
absl::StatusOr<std::vector<Scenario>> Matching(std::vector<Scenario> scenarios,
                                               const std::string& path, const std::string& filter) {
  std::vector<std::string> names;
  for (const Scenario& scenario : scenarios) names.push_back(scenario.name);
  const absl::StatusOr<std::set<std::string>> matching = MatchingNames(names, path, filter);
  if (!matching.ok()) return matching.status();
  std::erase_if(scenarios, [&](const Scenario& s) { return !matching->contains(s.name); });
  return scenarios;
}

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_SCENARIO_PARTS_H_
