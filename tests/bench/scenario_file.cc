#include "tests/bench/scenario_file.h"

#include <regex.h>

#include <fstream>
#include <iterator>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace concert::bench {
namespace {

using nlohmann::json;

// A GEMM of more than this in one dimension is a typing error, not a benchmark.
constexpr int64_t kMaxExtent = 1 << 20;
constexpr int64_t kMaxCount = 256;  // queues of a session

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

absl::StatusOr<Dtype> DtypeOf(const json& gemm, const std::string& where) {
  const json value = gemm.value("dtype", json("bf16"));
  if (value == "bf16") return Dtype::kBf16;
  if (value == "fp16") return Dtype::kFp16;
  if (value == "fp32") return Dtype::kFp32;
  if (value == "fp8_e4m3") return Dtype::kFp8E4m3;
  if (value == "fp8_e5m2") return absl::UnimplementedError(value.get<std::string>());
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": dtype is ", value.dump(),
                   "; it must be \"bf16\", \"fp16\", \"fp32\" or \"fp8_e4m3\""));
}

absl::Status RejectUnknownKeys(const json& object, const std::set<std::string>& known,
                               const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (!known.contains(key))
      return absl::InvalidArgumentError(absl::StrCat(where, ": unknown key '", key, "'"));
  }
  return absl::OkStatus();
}

// Appends `count` shapes.
absl::Status AppendGemms(const json& gemm, const std::string& where,
                         std::vector<GemmShape>& shapes) {
  if (!gemm.is_object())
    return absl::InvalidArgumentError(absl::StrCat(where, " is not an object"));
  absl::Status known = RejectUnknownKeys(gemm, {"m", "n", "k", "count", "dtype"}, where);
  if (!known.ok()) return known;
  int64_t extents[3];
  const char* const keys[3] = {"m", "n", "k"};
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<int64_t> extent = Integer(gemm, keys[i], kMaxExtent, 0, where);
    if (!extent.ok()) return extent.status();
    extents[i] = *extent;
  }
  const absl::StatusOr<int64_t> count = Integer(gemm, "count", kMaxCount, 1, where);
  if (!count.ok()) return count.status();
  const absl::StatusOr<Dtype> dtype = DtypeOf(gemm, where);
  if (!dtype.ok()) return dtype.status();
  const GemmShape shape{.m = static_cast<uint32_t>(extents[0]),
                        .n = static_cast<uint32_t>(extents[1]),
                        .k = static_cast<uint32_t>(extents[2]),
                        .dtype = *dtype};
  shapes.insert(shapes.end(), static_cast<size_t>(*count), shape);
  if (shapes.size() > kMaxCount) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": a scenario has more than ", kMaxCount, " GEMMs"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GemmScenario> ParseScenario(const json& entry, const std::string& path,
                                           size_t index) {
  std::string where = absl::StrCat(path, ": scenario ", index);
  if (!entry.is_object())
    return absl::InvalidArgumentError(absl::StrCat(where, " is not an object"));
  if (!entry.contains("name") || !entry["name"].is_string() || entry["name"] == "") {
    return absl::InvalidArgumentError(absl::StrCat(where, " has no name"));
  }
  GemmScenario scenario{.name = entry["name"], .group = "", .gemms = {}, .unsupported = ""};
  absl::StrAppend(&where, " '", scenario.name, "'");
  absl::Status known = RejectUnknownKeys(entry, {"name", "class", "gemms"}, where);
  if (!known.ok()) return known;
  if (entry.contains("class") && !entry["class"].is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": class is not a string"));
  }
  scenario.group = entry.value("class", "");
  const json gemms = entry.value("gemms", json());
  if (!gemms.is_array() || gemms.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": gemms must be a list of at least one GEMM"));
  }
  for (size_t i = 0; i < gemms.size(); ++i) {
    absl::Status status = AppendGemms(gemms[i], absl::StrCat(where, ", GEMM ", i), scenario.gemms);
    if (absl::IsUnimplemented(status)) {
      scenario.unsupported = absl::StrCat("no op takes ", status.message(), " yet");
      break;
    }
    if (!status.ok()) return status;
  }
  return scenario;
}

}  // namespace

absl::StatusOr<std::vector<GemmScenario>> ParseGemmScenarios(std::string_view text,
                                                             const std::string& path,
                                                             const std::string& filter) {
  const json file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded())
    return absl::InvalidArgumentError(absl::StrCat(path, " is not valid JSON"));
  if (!file.is_object() || file.value("suite", json()) != "gemm" || !file.contains("scenarios") ||
      !file["scenarios"].is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is no gemm suite; it must be {\"suite\": \"gemm\", \"scenarios\": [...]}"));
  }
  regex_t wanted;
  if (const int error = regcomp(&wanted, filter.c_str(), REG_EXTENDED | REG_NOSUB); error != 0) {
    char why[128];
    regerror(error, &wanted, why, sizeof(why));
    return absl::InvalidArgumentError(
        absl::StrCat("--filter '", filter, "' is no regular expression: ", why));
  }
  const absl::Cleanup free_wanted = [&] { regfree(&wanted); };
  std::vector<GemmScenario> scenarios;
  std::set<std::string> names;
  for (size_t i = 0; i < file["scenarios"].size(); ++i) {
    absl::StatusOr<GemmScenario> scenario = ParseScenario(file["scenarios"][i], path, i);
    if (!scenario.ok()) return scenario.status();
    if (!names.insert(scenario->name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": two scenarios are named '", scenario->name, "'"));
    }
    if (regexec(&wanted, scenario->name.c_str(), 0, nullptr, 0) == 0)
      scenarios.push_back(*std::move(scenario));
  }
  if (scenarios.empty()) {
    return absl::NotFoundError(absl::StrCat("no scenario of ", path, " matches '", filter, "'"));
  }
  return scenarios;
}

absl::StatusOr<std::vector<GemmScenario>> ReadGemmScenarios(const std::string& path,
                                                            const std::string& filter) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read the suite file ", path));
  return ParseGemmScenarios(text, path, filter);
}

}  // namespace concert::bench
