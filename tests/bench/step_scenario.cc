#include "tests/bench/step_scenario.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/bench/scenario_parts.h"

namespace concert::bench {
namespace {

using nlohmann::json;

constexpr int64_t kMaxStepExtent = 1 << 20;
constexpr int64_t kMaxLayers = 128;
constexpr int64_t kMaxBatch = 1024;
constexpr double kFlopsPerSecond = 790e12;
constexpr double kElementBytes = 2;

struct Extent {
  const char* key;
  uint32_t* value;
  int64_t max, missing;
};

absl::Status ReadExtents(const json& object, const std::vector<Extent>& extents,
                         const std::string& where) {
  for (const Extent& extent : extents) {
    const auto value = Integer(object, extent.key, extent.max, extent.missing, where);
    if (!value.ok()) return value.status();
    *extent.value = static_cast<uint32_t>(*value);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepModel> ParseModel(const json& entry, const std::string& where) {
  if (!entry.is_object() || !entry.value("id", json()).is_string())
    return absl::InvalidArgumentError(absl::StrCat(where, " is not an object with an id"));
  absl::Status known = RejectUnknownKeys(
      entry, {"id", "hidden", "heads", "kv_heads", "head_dim", "ffn", "layers", "vocab"}, where);
  if (!known.ok()) return known;
  StepModel model;
  model.id = entry["id"];
  absl::Status read = ReadExtents(entry,
                                  {{"hidden", &model.hidden, kMaxStepExtent, 0},
                                   {"heads", &model.heads, kMaxStepExtent, 0},
                                   {"kv_heads", &model.kv_heads, kMaxStepExtent, 0},
                                   {"head_dim", &model.head_dim, kMaxStepExtent, 0},
                                   {"ffn", &model.ffn, kMaxStepExtent, 0},
                                   {"layers", &model.layers, kMaxLayers, 0}},
                                  where);
  if (!read.ok()) return read;
  if (entry.value("vocab", json(0)) == 0) return model;
  read = ReadExtents(entry, {{"vocab", &model.vocabulary, kMaxStepExtent, 0}}, where);
  if (!read.ok()) return read;
  return model;
}

absl::StatusOr<std::map<std::string, StepModel>> ParseModels(const json& list,
                                                             const std::string& where) {
  if (!list.is_array())
    return absl::InvalidArgumentError(absl::StrCat(where, ": models must be a list"));
  std::map<std::string, StepModel> models;
  for (size_t i = 0; i < list.size(); ++i) {
    absl::StatusOr<StepModel> model = ParseModel(list[i], absl::StrCat(where, ", model ", i));
    if (!model.ok()) return model.status();
    const std::string id = model->id;
    if (!models.emplace(id, *std::move(model)).second)
      return absl::InvalidArgumentError(absl::StrCat(where, ": two models are named '", id, "'"));
  }
  return models;
}

// `context` is a number, or [first, last] of a batch whose lengths are spread evenly. The chunk of
// a prefill comes behind it, a decoded token is its last.
absl::StatusOr<std::vector<uint32_t>> ParseLengths(const json& entry, uint32_t chunk,
                                                   const std::string& where) {
  const absl::StatusOr<int64_t> batch = Integer(entry, "batch", kMaxBatch, 0, where);
  if (!batch.ok()) return batch.status();
  const json context = entry.value("context", json());
  const json ends = context.is_array() ? context : json::array({context, context});
  for (const json& end : ends) {
    const bool right = end.is_number_integer() && end >= (chunk > 0 ? 0 : 1) &&
                       end <= kMaxStepExtent - int64_t{chunk};
    if (ends.size() == 2 && right) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": context is ", context.dump(),
                     "; it must be a number of tokens, or the first and the last of a batch's"));
  }
  const double first = ends[0], last = ends[1];
  std::vector<uint32_t> lengths;
  for (int64_t i = 0; i < *batch; ++i) {
    const double share =
        *batch == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(*batch - 1);
    lengths.push_back(static_cast<uint32_t>(std::lround(first + (last - first) * share)) + chunk);
  }
  return lengths;
}

// 0 for role decode.
absl::StatusOr<uint32_t> ParseChunk(const json& entry, const std::string& where) {
  const json role = entry.value("role", json("decode"));
  if (role == "prefill") {
    const absl::StatusOr<int64_t> chunk = Integer(entry, "chunk", kMaxStepExtent, 0, where);
    if (!chunk.ok()) return chunk.status();
    return static_cast<uint32_t>(*chunk);
  }
  if (role != "decode") {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": role is ", role.dump(), "; it must be \"decode\" or \"prefill\""));
  }
  if (!entry.contains("chunk")) return 0;
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": chunk is ", entry["chunk"].dump(), "; only role prefill has one"));
}

absl::StatusOr<bool> SharesWeights(const json& entry, const std::string& where) {
  const json weights = entry.value("weights", json("own"));
  if (weights == "own" || weights == "shared") return weights == "shared";
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": weights is ", weights.dump(), "; it must be \"own\" or \"shared\""));
}

// Appends the clients that one entry of `clients` stands for.
absl::Status AppendClients(const json& entry, const std::map<std::string, StepModel>& models,
                           const std::string& where, StepScenario& scenario) {
  absl::Status known = RejectUnknownKeys(
      entry, {"model", "count", "batch", "context", "weights", "priority", "role", "chunk"}, where);
  if (!known.ok()) return known;
  const json id = entry.value("model", json());
  const auto model = models.find(id.is_string() ? id.get<std::string>() : "");
  if (model == models.end())
    return absl::InvalidArgumentError(absl::StrCat(where, ": there is no model ", id.dump()));
  const absl::StatusOr<uint32_t> chunk = ParseChunk(entry, where);
  if (!chunk.ok()) return chunk.status();
  const absl::StatusOr<int64_t> count = Integer(entry, "count", kMaxClients, 1, where);
  if (!count.ok()) return count.status();
  absl::StatusOr<std::vector<uint32_t>> lengths = ParseLengths(entry, *chunk, where);
  if (!lengths.ok()) return lengths.status();
  if (lengths->size() * *chunk > kMaxStepExtent) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": batch is ", lengths->size(),
                                                   " and chunk ", *chunk, "; a step has at most ",
                                                   kMaxStepExtent, " new tokens"));
  }
  const auto priority = PriorityFrom(entry.value("priority", json("normal")), where + ": priority");
  if (!priority.ok()) return priority.status();
  const absl::StatusOr<bool> shares = SharesWeights(entry, where);
  if (!shares.ok()) return shares.status();
  // Seeds of a model's place in the file for those who share, of the client's own for the others.
  const uint64_t shared_seed = kMaxClients + std::distance(models.begin(), model);
  for (int64_t i = 0; i < *count; ++i) {
    scenario.clients.push_back({.model = model->second,
                                .lengths = *lengths,
                                .chunk = *chunk,
                                .priority = *priority,
                                .shares_weights = *shares,
                                .weights_seed = *shares ? shared_seed : scenario.clients.size()});
  }
  return absl::OkStatus();
}

absl::StatusOr<StepScenario> ParseStepScenario(const json& entry, std::string where) {
  absl::StatusOr<std::string> name = NameOf(entry, where);
  if (!name.ok()) return name.status();
  StepScenario scenario{.name = *std::move(name), .clients = {}};
  absl::Status known = RejectUnknownKeys(entry, {"name", "models", "clients"}, where);
  if (!known.ok()) return known;
  const auto models = ParseModels(entry.value("models", json()), where);
  if (!models.ok()) return models.status();
  const json clients = entry.value("clients", json());
  if (!clients.is_array() || clients.empty())
    return absl::InvalidArgumentError(absl::StrCat(where, ": clients must be a list"));
  for (size_t i = 0; i < clients.size(); ++i) {
    const std::string place = absl::StrCat(where, ", clients ", i);
    if (!clients[i].is_object())
      return absl::InvalidArgumentError(absl::StrCat(place, " is not an object"));
    absl::Status appended = AppendClients(clients[i], *models, place, scenario);
    if (!appended.ok()) return appended;
  }
  if (scenario.clients.size() > kMaxClients) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": a scenario has more than ", kMaxClients, " clients"));
  }
  return scenario;
}

double Tokens(const StepScenario::Client& client) {
  double tokens = 0;
  for (const uint32_t length : client.lengths) tokens += length;
  return tokens;
}

// Keys and values: read, the newest written before; and what the LM head writes.
double StateBytes(const StepScenario::Client& client) {
  const StepModel& model = client.model;
  const double kv = 2.0 * model.kv_columns() * model.layers * (Tokens(client) + client.rows());
  return kElementBytes * (kv + 1.0 * client.batch() * model.vocabulary);
}

double Flops(const StepScenario::Client& client) {
  const StepModel& model = client.model;
  const double head = 1.0 * model.vocabulary * model.hidden;
  // The last of a sequence's new tokens attends to all, each before it to one fewer.
  const double attended =
      client.new_tokens() * (Tokens(client) - client.batch() * (client.new_tokens() - 1) / 2.0);
  return 2 * (model.parameters() - head) * client.rows() + 2 * head * client.batch() +
         4 * attended * model.q_columns() * model.layers;
}

// What so many steps of each client take at least. Those who share weights read them together.
double BoundSeconds(const StepScenario& scenario, const std::vector<double>& steps,
                    double memory_bytes_per_s) {
  double bytes = 0, flops = 0;
  std::map<uint64_t, double> weights_bytes;
  for (size_t i = 0; i < scenario.clients.size(); ++i) {
    const StepScenario::Client& client = scenario.clients[i];
    double& read = weights_bytes[client.weights_seed];
    read = std::max(read, steps[i] * kElementBytes * client.model.parameters());
    bytes += steps[i] * StateBytes(client);
    flops += steps[i] * Flops(client);
  }
  for (const auto& [seed, read] : weights_bytes) bytes += read;
  return std::max(bytes / memory_bytes_per_s, flops / kFlopsPerSecond);
}

}  // namespace

double StepModel::parameters() const {
  const double layer =
      1.0 * hidden * qkv_columns() + 1.0 * q_columns() * hidden + 3.0 * hidden * ffn + 2.0 * hidden;
  return layer * layers + hidden + 1.0 * vocabulary * hidden;
}

uint32_t StepScenario::Client::longest() const { return *std::ranges::max_element(lengths); }

std::string ClientName(const StepScenario::Client& client) {
  constexpr const char* kPriorities[] = {", low", "", ", high"};
  const auto [shortest, longest] = std::ranges::minmax_element(client.lengths);
  const uint32_t first = *shortest - client.chunk, last = *longest - client.chunk;
  return absl::StrCat(client.model.id, ": ", client.model.layers, " layers of ",
                      client.model.hidden, client.model.vocabulary > 0 ? " and LM head" : "",
                      ", batch ", client.batch(), ", context ", first,
                      first == last ? "" : absl::StrCat(" to ", last),
                      client.is_prefill() ? absl::StrCat(", chunk ", client.chunk) : "",
                      kPriorities[client.priority + 1]);
}

std::string WeightsOf(const StepScenario& scenario) {
  const auto shares = [](const StepScenario::Client& client) { return client.shares_weights; };
  if (std::ranges::all_of(scenario.clients, shares)) return "shared";
  return std::ranges::any_of(scenario.clients, shares) ? "mixed" : "own";
}

TenantGroup GroupOf(const StepScenario& scenario) {
  TenantGroup group{.scenario = scenario.name, .clients = {}};
  for (const StepScenario::Client& client : scenario.clients)
    group.clients.push_back({.name = ClientName(client), .priority = client.priority, .units = 1});
  return group;
}

double BoundStepsPerS(const StepScenario& scenario, double memory_bytes_per_s) {
  const std::vector<double> one_each(scenario.clients.size(), 1);
  return static_cast<double>(one_each.size()) /
         BoundSeconds(scenario, one_each, memory_bytes_per_s);
}

double ShareOfBound(const StepScenario& scenario, const std::vector<double>& steps_per_s,
                    double memory_bytes_per_s) {
  return BoundSeconds(scenario, steps_per_s, memory_bytes_per_s);
}

absl::StatusOr<std::vector<StepScenario>> ParseStepScenarios(std::string_view text,
                                                             const std::string& path,
                                                             const std::string& filter) {
  auto scenarios = ParseSuite<StepScenario>(text, "steps", path, ParseStepScenario);
  if (!scenarios.ok()) return scenarios.status();
  return Matching(*std::move(scenarios), path, filter);
}

absl::StatusOr<std::vector<StepScenario>> ReadStepScenarios(const std::string& path,
                                                            const std::string& filter) {
  const absl::StatusOr<std::string> text = ReadSuiteFile(path);
  if (!text.ok()) return text.status();
  return ParseStepScenarios(*text, path, filter);
}

}  // namespace concert::bench
