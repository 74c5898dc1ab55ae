#include "tests/bench/scenario_file.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "tests/bench/scenario_parts.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// A GEMM of more than this in one dimension is a typing error, not a benchmark.
constexpr int64_t kMaxExtent = 1 << 20;
constexpr int64_t kMaxCount = 256;  // queues of a session
constexpr int64_t kMaxGpus = 16;
constexpr int64_t kMaxRepeat = 1024;
constexpr int64_t kMaxCollectiveBytes = int64_t{1} << 34;
// [Dtype]
constexpr const char* kDtypeNames[] = {"", "bf16", "fp16", "fp32", "fp8_e4m3"};

absl::StatusOr<Dtype> DtypeOf(const json& gemm, const std::string& where) {
  const json value = gemm.value("dtype", json("bf16"));
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kFp8E4m3}) {
    if (value == kDtypeNames[static_cast<size_t>(dtype)]) return dtype;
  }
  if (value == "fp8_e5m2") return absl::UnimplementedError(value.get<std::string>());
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": dtype is ", value.dump(),
                   "; it must be \"bf16\", \"fp16\", \"fp32\" or \"fp8_e4m3\""));
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

// Fills in what `scenario` computes.
absl::Status ParseGemms(const json& gemms, const std::string& key, const std::string& where,
                        GemmScenario& scenario) {
  if (!gemms.is_array() || gemms.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", key, " must be a list of at least one GEMM"));
  }
  for (size_t i = 0; i < gemms.size(); ++i) {
    absl::Status status = AppendGemms(gemms[i], absl::StrCat(where, ", GEMM ", i), scenario.gemms);
    if (absl::IsUnimplemented(status)) {
      scenario.unsupported = absl::StrCat("no op takes ", status.message(), " yet");
      break;
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<GemmScenario> ParseGemmScenario(const json& entry, std::string where) {
  absl::StatusOr<std::string> name = NameOf(entry, where);
  if (!name.ok()) return name.status();
  GemmScenario scenario{.name = *std::move(name), .group = "", .gemms = {}, .unsupported = ""};
  absl::Status known = RejectUnknownKeys(entry, {"name", "class", "gemms"}, where);
  if (!known.ok()) return known;
  if (entry.contains("class") && !entry["class"].is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": class is not a string"));
  }
  scenario.group = entry.value("class", "");
  absl::Status parsed = ParseGemms(entry.value("gemms", json()), "gemms", where, scenario);
  if (!parsed.ok()) return parsed;
  return scenario;
}

absl::StatusOr<int> PriorityOf(const json& entry, size_t client, const std::string& where) {
  if (!entry.contains("priority")) return 0;
  const json& list = entry["priority"];
  return PriorityFrom(list.is_array() && client < list.size() ? list[client] : json(),
                      absl::StrCat(where, ": priority of client ", client));
}

// The chain of one client, `length` GEMMs long.
absl::StatusOr<GemmScenario> ParseChain(const json& entry, size_t client, int64_t length,
                                        const std::string& where) {
  const bool each_its_own = entry.contains("chains");
  json gemms = each_its_own ? json() : entry.value("chain", json());
  if (each_its_own && entry["chains"].is_array() && client < entry["chains"].size())
    gemms = entry["chains"][client];
  const std::string key = each_its_own ? absl::StrCat("chains[", client, "]") : "chain";
  GemmScenario chain{.name = key, .group = "", .gemms = {}, .unsupported = ""};
  absl::Status parsed = ParseGemms(gemms, key, where, chain);
  if (!parsed.ok()) return parsed;
  if (!chain.unsupported.empty()) return chain;
  const size_t distinct = chain.gemms.size();
  chain.gemms.resize(static_cast<size_t>(length));
  for (size_t i = distinct; i < chain.gemms.size(); ++i) chain.gemms[i] = chain.gemms[i - distinct];
  return chain;
}

absl::StatusOr<TenantScenario> ParseTenantScenario(const json& entry, std::string where) {
  absl::StatusOr<std::string> name = NameOf(entry, where);
  if (!name.ok()) return name.status();
  TenantScenario scenario{.name = *std::move(name), .clients = {}, .unsupported = ""};
  absl::Status known =
      RejectUnknownKeys(entry, {"name", "clients", "chain", "chains", "length", "priority"}, where);
  if (!known.ok()) return known;
  const absl::StatusOr<int64_t> clients = Integer(entry, "clients", kMaxClients, 0, where);
  if (!clients.ok()) return clients.status();
  const absl::StatusOr<int64_t> length = Integer(entry, "length", kMaxCount, 0, where);
  if (!length.ok()) return length.status();
  for (size_t client = 0; client < static_cast<size_t>(*clients); ++client) {
    absl::StatusOr<GemmScenario> chain = ParseChain(entry, client, *length, where);
    if (!chain.ok()) return chain.status();
    const absl::StatusOr<int> priority = PriorityOf(entry, client, where);
    if (!priority.ok()) return priority.status();
    if (!chain->unsupported.empty()) scenario.unsupported = chain->unsupported;
    scenario.clients.push_back({*std::move(chain), *priority});
  }
  return scenario;
}

absl::StatusOr<CollectiveShape> ParseCollective(const json& entry, int64_t gpus,
                                                const std::string& where) {
  if (!entry.is_object())
    return absl::InvalidArgumentError(absl::StrCat(where, ": collective is not an object"));
  absl::Status known = RejectUnknownKeys(entry, {"kind", "bytes", "dtype"}, where);
  if (!known.ok()) return known;
  const json name = entry.value("kind", json());
  const auto kind = FindCollectiveKind(name.is_string() ? name.get<std::string>() : "");
  if (!kind) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": kind is ", name.dump(),
                     "; it must be \"all_reduce\", \"all_gather\", \"reduce_scatter\", "
                     "\"all_to_all\" or \"broadcast\""));
  }
  const absl::StatusOr<int64_t> bytes = Integer(entry, "bytes", kMaxCollectiveBytes, 0, where);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<Dtype> dtype = DtypeOf(entry, where);
  if (!dtype.ok()) return dtype.status();
  const int64_t unit = gpus * static_cast<int64_t>(CollectiveShape::kElementBytes);
  if (*dtype != Dtype::kBf16 || *bytes % unit != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": a collective is bf16 and its bytes a multiple of ", unit, ", an element a rank"));
  }
  return CollectiveShape{
      .kind = *kind, .bytes = static_cast<uint64_t>(*bytes), .ranks = static_cast<uint32_t>(gpus)};
}

absl::StatusOr<OverlapScenario> ParseOverlapScenario(const json& entry, std::string where) {
  absl::StatusOr<std::string> name = NameOf(entry, where);
  if (!name.ok()) return name.status();
  OverlapScenario scenario;
  scenario.name = *std::move(name);
  absl::Status known =
      RejectUnknownKeys(entry, {"name", "gpus", "gemm", "repeat", "collective"}, where);
  if (!known.ok()) return known;
  const absl::StatusOr<int64_t> gpus = Integer(entry, "gpus", kMaxGpus, 0, where);
  if (!gpus.ok()) return gpus.status();
  const absl::StatusOr<int64_t> repeat = Integer(entry, "repeat", kMaxRepeat, 1, where);
  if (!repeat.ok()) return repeat.status();
  std::vector<GemmShape> gemms;
  absl::Status parsed =
      AppendGemms(entry.value("gemm", json()), absl::StrCat(where, ", gemm"), gemms);
  if (!parsed.ok()) return parsed;
  const auto collective = ParseCollective(entry.value("collective", json()), *gpus, where);
  if (!collective.ok()) return collective.status();
  scenario.gemm = gemms.front();
  scenario.repeat = static_cast<int>(*repeat);
  scenario.collective = *collective;
  return scenario;
}

bool SameShape(const GemmShape& a, const GemmShape& b) {
  return a.m == b.m && a.n == b.n && a.k == b.k && a.dtype == b.dtype;
}

bool SameChain(const GemmScenario& a, const GemmScenario& b) {
  return std::equal(a.gemms.begin(), a.gemms.end(), b.gemms.begin(), b.gemms.end(), SameShape);
}

// A scenario with one client for every chain that has none yet. Sharing is not all that a client
// pays for: what it loses while it has the GPU to itself must be measured, too.
void AppendAlone(std::vector<TenantScenario>& scenarios) {
  std::vector<TenantScenario> alone;
  const auto has = [](const std::vector<TenantScenario>& list, const GemmScenario& chain) {
    return std::any_of(list.begin(), list.end(), [&](const TenantScenario& scenario) {
      return scenario.clients.size() == 1 && SameChain(scenario.clients[0].chain, chain);
    });
  };
  const auto taken = [&](const std::string& name) {
    const auto named = [&](const TenantScenario& scenario) { return scenario.name == name; };
    return std::any_of(scenarios.begin(), scenarios.end(), named) ||
           std::any_of(alone.begin(), alone.end(), named);
  };
  for (const TenantScenario& scenario : scenarios) {
    if (!scenario.unsupported.empty()) continue;
    for (const TenantScenario::Client& client : scenario.clients) {
      if (has(scenarios, client.chain) || has(alone, client.chain)) continue;
      const TenantScenario::Client one{.chain = client.chain, .priority = 0};
      std::string name = absl::StrCat("alone-", ClientName(one));
      std::replace(name.begin(), name.end(), ' ', '-');
      while (taken(name)) name += "'";
      alone.push_back({.name = name, .clients = {one}, .unsupported = ""});
    }
  }
  scenarios.insert(scenarios.end(), alone.begin(), alone.end());
}

}  // namespace

absl::StatusOr<std::vector<GemmScenario>> ParseGemmScenarios(std::string_view text,
                                                             const std::string& path,
                                                             const std::string& filter) {
  absl::StatusOr<std::vector<GemmScenario>> scenarios =
      ParseSuite<GemmScenario>(text, "gemm", path, ParseGemmScenario);
  if (!scenarios.ok()) return scenarios.status();
  return Matching(*std::move(scenarios), path, filter);
}

absl::StatusOr<std::vector<GemmScenario>> ReadGemmScenarios(const std::string& path,
                                                            const std::string& filter) {
  const absl::StatusOr<std::string> text = ReadSuiteFile(path);
  if (!text.ok()) return text.status();
  return ParseGemmScenarios(*text, path, filter);
}

std::string ClientName(const TenantScenario::Client& client) {
  constexpr const char* kPriorities[] = {", low", "", ", high"};
  std::vector<std::string> shapes;
  const std::vector<GemmShape>& gemms = client.chain.gemms;
  for (size_t i = 0; i < gemms.size(); ++i) {
    const GemmShape& gemm = gemms[i];
    if (i > 0 && SameShape(gemm, gemms[0])) break;  // from here on the chain repeats itself
    const std::string dtype = gemm.dtype == Dtype::kBf16
                                  ? ""
                                  : absl::StrCat(" ", kDtypeNames[static_cast<size_t>(gemm.dtype)]);
    shapes.push_back(absl::StrCat(gemm.m, "x", gemm.n, "x", gemm.k, dtype));
  }
  return absl::StrCat(absl::StrJoin(shapes, "+"), " x", gemms.size(),
                      kPriorities[client.priority + 1]);
}

bool TenantScenario::has_priorities() const {
  for (const Client& client : clients) {
    if (client.priority != clients.front().priority) return true;
  }
  return false;
}

absl::StatusOr<std::vector<TenantScenario>> ParseTenantScenarios(std::string_view text,
                                                                 const std::string& path,
                                                                 const std::string& filter) {
  absl::StatusOr<std::vector<TenantScenario>> scenarios =
      ParseSuite<TenantScenario>(text, "tenants", path, ParseTenantScenario);
  if (!scenarios.ok()) return scenarios.status();
  AppendAlone(*scenarios);
  return Matching(*std::move(scenarios), path, filter);
}

absl::StatusOr<std::vector<TenantScenario>> ReadTenantScenarios(const std::string& path,
                                                                const std::string& filter) {
  const absl::StatusOr<std::string> text = ReadSuiteFile(path);
  if (!text.ok()) return text.status();
  return ParseTenantScenarios(*text, path, filter);
}

absl::StatusOr<std::vector<OverlapScenario>> ParseOverlapScenarios(std::string_view text,
                                                                   const std::string& path,
                                                                   const std::string& filter) {
  absl::StatusOr<std::vector<OverlapScenario>> scenarios =
      ParseSuite<OverlapScenario>(text, "c3", path, ParseOverlapScenario);
  if (!scenarios.ok()) return scenarios.status();
  return Matching(*std::move(scenarios), path, filter);
}

absl::StatusOr<std::vector<OverlapScenario>> ReadOverlapScenarios(const std::string& path,
                                                                  const std::string& filter) {
  const absl::StatusOr<std::string> text = ReadSuiteFile(path);
  if (!text.ok()) return text.status();
  return ParseOverlapScenarios(*text, path, filter);
}

}  // namespace concert::bench
