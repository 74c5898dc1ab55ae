#include "client/ctl/tune_files.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "client/ctl/json.h"
#include "proto/command/words.h"

namespace concert::ctl {
namespace {

using google::protobuf::util::JsonParseOptions;
using google::protobuf::util::JsonStringToMessage;
using nlohmann::json;

constexpr size_t kMaxFileBytes = 256 << 20;

// False, with `error`, if it cannot be read.
bool ReadFile(const std::string& path, std::string& text, std::string& error) {
  std::ifstream file(path, std::ios::binary);
  if (file) {
    file.seekg(0, std::ios::end);
    const auto bytes = static_cast<int64_t>(file.tellg());
    if (bytes >= 0 && static_cast<size_t>(bytes) <= kMaxFileBytes) {
      text.resize(static_cast<size_t>(bytes));
      file.seekg(0);
      file.read(text.data(), bytes);
      if (file) return true;
    }
  }
  error = "cannot read " + path;
  return false;
}

// One JSON object as a message with the same field names.
bool Parse(const std::string& text, google::protobuf::Message* message, const std::string& where,
           std::string& error) {
  JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = JsonStringToMessage(text, message, options);
  if (status.ok()) return true;
  error = where + ": " + std::string(status.message());
  return false;
}

using Check = bool (*)(const json&, const google::protobuf::Message&, const std::string& where,
                       std::string& error);

// Whether a line is one of those that are wanted; one that is no JSON is.
using Wanted = bool (*)(const json&);
bool IsCurve(const json& line) { return line.is_object() && line.contains("transport"); }
bool IsRow(const json& line) { return !IsCurve(line); }

// `check`, if given, judges each line before it is read. `wanted`, if given, says which are.
template <typename T>
FileContents<T> ReadLines(const std::string& path, Check check, Wanted wanted) {
  FileContents<T> contents;
  std::string text;
  if (!ReadFile(path, text, contents.error)) return contents;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    T entry;
    const std::string where = path + ":" + std::to_string(number);
    const json object = json::parse(line, nullptr, false);
    if (wanted != nullptr && !wanted(object)) continue;
    if (check != nullptr && !check(object, entry, where, contents.error)) return contents;
    if (!Parse(line, &entry, where, contents.error)) return contents;
    contents.entries.push_back(std::move(entry));
  }
  return contents;
}

// False, with `error`, if `object` has a key that no field of `message` is named after: a mistyped
// one would count as left out.
bool KeysAreKnown(const json& object, const google::protobuf::Message& message,
                  const std::string& where, std::string& error) {
  const int fields = message.GetDescriptor()->field_count();
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(fields));
  for (int i = 0; i < fields; ++i) names.push_back(message.GetDescriptor()->field(i)->name());
  if (!object.is_object()) return true;
  for (const auto& [key, value] : object.items()) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    error = where;
    error.append(": unknown key '").append(key).append("'");
    const std::string hint = command::DidYouMean(key, names);
    if (hint.empty()) {
      for (const std::string& name : names)
        error.append(&name == &names.front() ? "; known are " : ", ").append(name);
    }
    error += hint;
    return false;
  }
  return true;
}

// Adds the GEMMs of a list; `dtype` is for those that name none. Strict: refuses unknown keys.
bool AddGemms(const json& gemms, const std::string& dtype, const std::string& where, bool strict,
              FileContents<v1::TuningProblem>& contents) {
  if (!gemms.is_array()) {
    contents.error = where + ": expected a list of GEMMs, each {\"m\":, \"n\":, \"k\":}";
    return false;
  }
  for (size_t i = 0; i < gemms.size(); ++i) {
    v1::TuningProblem problem;
    const std::string entry = where + ", GEMM " + std::to_string(i + 1);
    if (strict && !KeysAreKnown(gemms[i], problem, entry, contents.error)) return false;
    if (!Parse(gemms[i].dump(), &problem, entry, contents.error)) return false;
    if (problem.dtype().empty()) problem.set_dtype(dtype);
    contents.entries.push_back(std::move(problem));
  }
  return true;
}

std::string TextOf(const json& object, const char* key, const std::string& otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

std::string FormatTimes(const v1::TunedRow& a, const v1::TunedRow& b) {
  char text[96];
  std::snprintf(text, sizeof(text), "%.2f us (spread %.2f) and %.2f us (spread %.2f)",
                a.median_us(), a.spread_us(), b.median_us(), b.spread_us());
  return text;
}

}  // namespace

FileContents<v1::TuningProblem> ReadScenarios(const std::string& path) {
  FileContents<v1::TuningProblem> contents;
  std::string text;
  if (!ReadFile(path, text, contents.error)) return contents;
  const json file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || !file.contains("scenarios") || !file["scenarios"].is_array()) {
    contents.error = path + ": expected {\"scenarios\": [...]}";
    return contents;
  }
  for (const json& scenario : file["scenarios"]) {
    const std::string where =
        path + ": scenario " + (scenario.is_object() ? TextOf(scenario, "name", "?") : "?");
    if (!scenario.is_object() || !scenario.contains("gemms")) {
      contents.error = where + ": expected {\"name\":, \"gemms\": [...]}";
      return contents;
    }
    if (!AddGemms(scenario["gemms"], TextOf(scenario, "dtype", "bf16"), where, /*strict=*/false,
                  contents))
      return contents;
  }
  return contents;
}

FileContents<v1::TuningProblem> ReadShapes(const std::string& path) {
  FileContents<v1::TuningProblem> contents;
  std::string text;
  if (!ReadFile(path, text, contents.error)) return contents;
  const json file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  AddGemms(file.is_object() && file.contains("gemms") ? file["gemms"] : file, "bf16", path,
           /*strict=*/true, contents);
  return contents;
}

FileContents<v1::TuningProblem> ReadShapeLines(const std::string& path) {
  return ReadLines<v1::TuningProblem>(path, KeysAreKnown, nullptr);
}

FileContents<v1::TunedRow> ReadRows(const std::string& path) {
  return ReadLines<v1::TunedRow>(path, nullptr, IsRow);
}

FileContents<v1::TransportCurve> ReadCurves(const std::string& path) {
  return ReadLines<v1::TransportCurve>(path, nullptr, IsCurve);
}

void WriteRow(const v1::TunedRow& row, std::ostream& out) { out << ToJson(row).dump() << "\n"; }

void WriteCurve(const v1::TransportCurve& curve, std::ostream& out) {
  out << ToJson(curve).dump() << "\n";
}

std::string DescribeKey(const v1::TunedRow& row) {
  std::string text =
      std::to_string(row.m()) + "x" + std::to_string(row.n()) + "x" + std::to_string(row.k());
  if (row.batch() > 1) text += ", batch " + std::to_string(row.batch());
  text += " " + row.dtype() + ", " + row.form();
  if (row.degree() != "solo") text += ", degree " + row.degree();
  if (row.sm_budget() != 0) text += ", " + std::to_string(row.sm_budget()) + " SMs";
  return text;
}

RowsDiff DiffRows(const std::vector<v1::TunedRow>& first, const std::vector<v1::TunedRow>& second) {
  using Pair = std::pair<const v1::TunedRow*, const v1::TunedRow*>;
  std::map<std::string, Pair> rows;
  for (const v1::TunedRow& row : first) rows[DescribeKey(row)].first = &row;
  for (const v1::TunedRow& row : second) rows[DescribeKey(row)].second = &row;
  RowsDiff diff;
  const auto add = [&diff](const char* kind, const Pair& pair, const std::string& line) {
    diff.text += line + "\n";
    nlohmann::ordered_json difference = {{"kind", kind}};
    if (pair.first != nullptr) difference["first"] = ToJson(*pair.first);
    if (pair.second != nullptr) difference["second"] = ToJson(*pair.second);
    diff.differences.push_back(std::move(difference));
  };
  for (const auto& [key, pair] : rows) {
    const auto& [a, b] = pair;
    if (b == nullptr) {
      ++diff.only_first;
      add("only_first", pair, "only in the first: " + key);
    } else if (a == nullptr) {
      ++diff.only_second;
      add("only_second", pair, "only in the second: " + key);
    } else if (!google::protobuf::util::MessageDifferencer::Equals(a->variant(), b->variant())) {
      ++diff.other_variant;
      add("other_variant", pair, "another variant: " + key + ": " + FormatTimes(*a, *b));
    } else if (std::abs(a->median_us() - b->median_us()) >
               std::hypot(a->spread_us(), b->spread_us())) {
      ++diff.other_time;
      add("other_time", pair, "another time: " + key + ": " + FormatTimes(*a, *b));
    } else {
      ++diff.same;
    }
  }
  return diff;
}

}  // namespace concert::ctl
