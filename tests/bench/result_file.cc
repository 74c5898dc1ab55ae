#include "tests/bench/result_file.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

using nlohmann::json;

double RoundToNanosecond(double us) { return std::round(us * 1000) / 1000; }

absl::Status Wrong(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("result file: ", where, " ", what));
}

std::string PartialOf(const std::string& path) { return absl::StrCat(path, ".partial"); }

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::PermissionDeniedError(
      absl::StrCat("cannot write --out ", path, ": ", std::strerror(error),
                   error == ENOENT ? "; its folder must be there" : ""));
}

// Times are positive numbers; a missing value is left out, never zero or null.
absl::Status ValidateTimes(const json& times, const std::string& where) {
  if (!times.is_object() || times.empty()) return Wrong(where, "must be an object of times");
  for (const auto& [form, spread] : times.items()) {
    const std::string name = absl::StrCat(where, ".", form);
    if (!spread.is_object() || !spread.contains("p50")) return Wrong(name, "has no p50");
    for (const auto& [quantile, value] : spread.items()) {
      if (!value.is_number() || value.get<double>() <= 0) {
        return Wrong(absl::StrCat(name, ".", quantile),
                     absl::StrCat("is ", value.dump(), ", not a time"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateOverhead(const json& scenario, const std::string& where) {
  for (const char* key : {"local_us", "ring_us", "added_us"}) {
    for (const char* quantile : {"p50", "p90", "p99"}) {
      if (!scenario.contains(key) || !scenario[key].is_object() ||
          !scenario[key].contains(quantile) || !scenario[key][quantile].is_number()) {
        return Wrong(absl::StrCat(where, ".", key, ".", quantile), "is missing");
      }
    }
  }
  return absl::OkStatus();
}

// Every mode that has a time has a throughput and each client's latencies.
absl::Status ValidateTenants(const json& scenario, const std::string& where) {
  const json clients = scenario.value("clients", json());
  if (!clients.is_number_unsigned()) return Wrong(where + ".clients", "must be a number");
  for (const auto& [mode, spread] : scenario["times_us"].items()) {
    if (!scenario.value("throughput_per_s", json::object()).contains(mode))
      return Wrong(absl::StrCat(where, ".throughput_per_s.", mode), "is missing");
    const json latencies = scenario.value("latency_us", json::object()).value(mode, json());
    if (!latencies.is_array() || latencies.size() != clients)
      return Wrong(absl::StrCat(where, ".latency_us.", mode), "must have an entry per client");
  }
  return absl::OkStatus();
}

// One entry a line: what git shows of a new measurement is what was measured anew.
std::string DumpEntries(const json& list) {
  return absl::StrJoin(list, ",", [](std::string* out, const json& entry) {
    absl::StrAppend(out, "\n  ", entry.dump());
  });
}

}  // namespace

json NewResult(std::string_view suite) {
  return {{"schema", 1},
          {"suite", suite},
          {"header", json::object()},
          {"scenarios", json::array()},
          {"summary", json::object()}};
}

json Spread(std::span<const double> samples_us) {
  return {{"p50", RoundToNanosecond(Quantile(samples_us, 0.5))},
          {"p10", RoundToNanosecond(Quantile(samples_us, 0.1))},
          {"p90", RoundToNanosecond(Quantile(samples_us, 0.9))}};
}

absl::Status ValidateResult(const json& result) {
  if (!result.is_object() || result.value("schema", json()) != 1)
    return Wrong("schema", "must be 1");
  if (!result.value("suite", json()).is_string()) return Wrong("suite", "must be a name");
  for (const char* key : {"header", "summary"}) {
    if (!result.value(key, json()).is_object()) return Wrong(key, "must be an object");
  }
  for (const char* key : {"device", "gpu", "gpus", "commit", "date", "policy", "rounds"}) {
    if (!result["header"].contains(key)) return Wrong(absl::StrCat("header.", key), "is missing");
  }
  if (!result.value("scenarios", json()).is_array()) return Wrong("scenarios", "must be a list");
  for (const json& scenario : result["scenarios"]) {
    if (!scenario.is_object() || !scenario.value("name", json()).is_string()) {
      return Wrong("scenarios", "has an entry without a name");
    }
    const std::string where = scenario["name"];
    absl::Status status =
        result["suite"] == "overhead"
            ? ValidateOverhead(scenario, where)
            : ValidateTimes(scenario.value("times_us", json()), where + ".times_us");
    if (status.ok() && (result["suite"] == "tenants" || result["suite"] == "steps"))
      status = ValidateTenants(scenario, where);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool IsQuickLook(const json& result) {
  const json& header = result["header"];
  if (result["suite"] == "tenants" && !header.contains("laps")) return true;
  return header.value("laps", header["rounds"]).get<int>() < kRoundsToPublish;
}

std::string Caveats(const json& result) {
  const json header = result.value("header", json::object());
  std::vector<std::string> caveats;
  if (header.value("device", "") == "sim") {
    caveats.push_back(
        "modelled H200, results computed on this CPU: the times are the model's and say nothing "
        "about a real GPU");
  }
  if (header.contains("rounds") && IsQuickLook(result)) {
    caveats.push_back(
        absl::StrCat("quick look of ", header["rounds"].dump(), " rounds, not for publication"));
  }
  return absl::StrJoin(caveats, "; ");
}

std::string DumpResult(const json& result) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : result.items()) {
    const std::string text =
        key == "scenarios" ? absl::StrCat("[", DumpEntries(value), "\n ]") : value.dump();
    parts.push_back(absl::StrCat("\n ", json(key).dump(), ": ", text));
  }
  return absl::StrCat("{", absl::StrJoin(parts, ","), "\n}\n");
}

absl::StatusOr<json> ReadResult(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read the result file ", path));
  json result = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const absl::Status valid = result.is_discarded()
                                 ? absl::InvalidArgumentError("result file: no valid JSON")
                                 : ValidateResult(result);
  if (!valid.ok()) return absl::Status(valid.code(), absl::StrCat(path, ": ", valid.message()));
  return result;
}

absl::Status CheckWritable(const std::string& path) {
  const std::string partial = PartialOf(path);
  if (std::filesystem::is_directory(path)) return CannotWrite(path, EISDIR);
  if (!std::ofstream(partial)) return CannotWrite(path, errno);
  std::remove(partial.c_str());
  return absl::OkStatus();
}

absl::Status WriteResult(const json& result, const std::string& path) {
  if (absl::Status status = ValidateResult(result); !status.ok()) return status;
  const std::string partial = PartialOf(path);
  std::ofstream file(partial);
  file << DumpResult(result);
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(partial.c_str());
    return CannotWrite(path, error);
  }
  return absl::OkStatus();
}

}  // namespace concert::bench
