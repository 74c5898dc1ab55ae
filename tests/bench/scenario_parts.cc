#include "tests/bench/scenario_parts.h"

#include <regex.h>

#include <fstream>
#include <iterator>

#include "absl/cleanup/cleanup.h"

namespace concert::bench {

using nlohmann::json;

absl::StatusOr<int64_t> Integer(const json& object, const char* key, int64_t max, int64_t missing,
                                const std::string& where) {
  if (!object.contains(key) && missing > 0) return missing;
  const json value = object.value(key, json());
  if (!value.is_number_integer() || value < 1 || value > max) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", key, " is ",
                                                   value.is_null() ? "missing" : value.dump(),
                                                   "; it must be an integer between 1 and ", max));
  }
  return value.get<int64_t>();
}

absl::Status RejectUnknownKeys(const json& object, const std::set<std::string>& known,
                               const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (!known.contains(key))
      return absl::InvalidArgumentError(absl::StrCat(where, ": unknown key '", key, "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> NameOf(const json& entry, std::string& where) {
  if (!entry.is_object())
    return absl::InvalidArgumentError(absl::StrCat(where, " is not an object"));
  if (!entry.contains("name") || !entry["name"].is_string() || entry["name"] == "") {
    return absl::InvalidArgumentError(absl::StrCat(where, " has no name"));
  }
  std::string name = entry["name"];
  absl::StrAppend(&where, " '", name, "'");
  return name;
}

absl::StatusOr<int> PriorityFrom(const json& value, const std::string& whose) {
  if (value == "low") return -1;
  if (value == "normal") return 0;
  if (value == "high") return 1;
  return absl::InvalidArgumentError(
      absl::StrCat(whose, " is ", value.dump(), "; it must be \"low\", \"normal\" or \"high\""));
}

absl::StatusOr<std::string> ReadSuiteFile(const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read the suite file ", path));
  return text;
}

absl::StatusOr<std::set<std::string>> MatchingNames(const std::vector<std::string>& names,
                                                    const std::string& where,
                                                    const std::string& filter) {
  regex_t wanted;
  if (const int error = regcomp(&wanted, filter.c_str(), REG_EXTENDED | REG_NOSUB); error != 0) {
    char why[128];
    regerror(error, &wanted, why, sizeof(why));
    return absl::InvalidArgumentError(
        absl::StrCat("--filter '", filter, "' is no regular expression: ", why));
  }
  const absl::Cleanup free_wanted = [&] { regfree(&wanted); };
  std::set<std::string> matching;
  for (const std::string& name : names) {
    if (regexec(&wanted, name.c_str(), 0, nullptr, 0) == 0) matching.insert(name);
  }
  if (matching.empty())
    return absl::NotFoundError(absl::StrCat("no scenario of ", where, " matches '", filter, "'"));
  return matching;
}

}  // namespace concert::bench
