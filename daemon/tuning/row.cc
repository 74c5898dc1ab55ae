#include "daemon/tuning/row.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/gemm/gemm_op.h"
#include "policies/seam/policy.h"
#include "proto/ring/messages.h"

namespace concert::daemon {
namespace {

using policies::Degree;
using policies::Dtype;
using policies::Form;
using policies::Variant;

constexpr std::array<std::string_view, policies::kDegreeCount> kDegreeNames = {
    "solo", "two", "four", "eight", "many"};
constexpr std::array<std::string_view, 3> kSourceNames = {"none", "cublaslt", "group"};
constexpr uint32_t kMaxDtypes = 16;  // numbers that the ring ABI may give to dtypes
constexpr double kMinTimeUs = 1e-3;
constexpr double kMaxTimeUs = 100e6;
constexpr uint32_t kMaxSamples = 1'000'000;
constexpr uint32_t kMaxSms = 1024;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Whole numbers with all their digits: a value just beyond a limit must not look like it.
std::string Digits(double value) {
  constexpr double kExact = 1LL << 53;
  return std::floor(value) == value && std::abs(value) < kExact
             ? absl::StrCat(static_cast<int64_t>(value))
             : absl::StrFormat("%.9g", value);
}

absl::Status OutOfRange(std::string_view field, double value, double low, double high) {
  return absl::InvalidArgumentError(absl::StrCat(
      View(field), " is ", Digits(value), "; it must be ", Digits(low), " to ", Digits(high)));
}

absl::Status CheckVariant(const Variant& variant, Dtype dtype) {
  for (const VariantField& field : VariantFields()) {
    if (absl::Status status = CheckNumber(field.name, field.get(variant), 0, field.max);
        !status.ok())
      return status;
  }
  if (static_cast<size_t>(variant.source) >= kSourceNames.size())
    return OutOfRange("source", static_cast<double>(variant.source), 0, kSourceNames.size() - 1);
  if (variant.dtype != dtype) {
    return absl::InvalidArgumentError(absl::StrCat("the variant's dtype is ",
                                                   DtypeName(variant.dtype), ", its problem's is ",
                                                   DtypeName(dtype), "; they must be the same"));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const policies::TunedKey& key) {
  const policies::Problem& problem = key.problem;
  struct Bound {
    std::string_view field;
    uint64_t value, low, high;
  };
  for (const Bound& bound : {Bound{"m", problem.m, 1, kernels::kMaxGemmDimension},
                             Bound{"n", problem.n, 1, kernels::kMaxGemmDimension},
                             Bound{"k", problem.k, 1, kernels::kMaxGemmDimension},
                             Bound{"batch", problem.batch, 1, kernels::kMaxGemmBatch},
                             Bound{"sm_budget", key.sm_budget, 0, kMaxSms}}) {
    if (absl::Status status =
            CheckNumber(bound.field, static_cast<double>(bound.value),
                        static_cast<double>(bound.low), static_cast<double>(bound.high));
        !status.ok())
      return status;
  }
  if (!ParseDtype(DtypeName(problem.dtype)))
    return absl::InvalidArgumentError("dtype is not one of the ring ABI's");
  if (static_cast<size_t>(key.degree) >= kDegreeNames.size() ||
      static_cast<size_t>(key.form) > static_cast<size_t>(Form::kGroup) ||
      (key.form == Form::kSingle) != (key.degree == Degree::kSolo)) {
    return absl::InvalidArgumentError(
        "form and degree do not fit; single is for solo, streams and group are for more");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNumber(std::string_view field, double value, double low, double high) {
  return value >= low && value <= high ? absl::OkStatus() : OutOfRange(field, value, low, high);
}

absl::Status CheckRow(const StoredRow& row) {
  const policies::TunedRow& tuned = row.tuned;
  if (absl::Status status = CheckKey(tuned.key); !status.ok()) return status;
  const Dtype dtype = tuned.key.problem.dtype;
  if (absl::Status status = CheckVariant(tuned.variant, dtype); !status.ok()) return status;
  if (tuned.variant.source == Variant::Source::kNone)
    return absl::InvalidArgumentError("the variant's source is none; name cublaslt or group");
  for (const absl::Status& status :
       {CheckNumber("median_us", tuned.median_us, kMinTimeUs, kMaxTimeUs),
        CheckNumber("spread_us", tuned.spread_us, 0, kMaxTimeUs),
        CheckNumber("samples", tuned.samples, 1, kMaxSamples),
        CheckNumber("runner_up_us", row.runner_up_us, 0, kMaxTimeUs),
        CheckNumber("measured_at_s", static_cast<double>(row.measured_at_s), 0, 1e11)}) {
    if (!status.ok()) return status;
  }
  return row.runner_up.source == Variant::Source::kNone ? absl::OkStatus()
                                                        : CheckVariant(row.runner_up, dtype);
}

bool Replaces(const StoredRow& fresh, const StoredRow& old) {
  if (old.stale) return true;
  return fresh.tuned.median_us + std::hypot(fresh.tuned.spread_us, old.tuned.spread_us) <
         old.tuned.median_us;
}

std::string DtypeName(Dtype dtype) { return concert_dtype_name(static_cast<uint64_t>(dtype)); }

std::string_view DegreeName(Degree degree) { return kDegreeNames[static_cast<size_t>(degree)]; }

std::string_view SourceName(Variant::Source source) {
  return kSourceNames[static_cast<size_t>(source)];
}

std::optional<Dtype> ParseDtype(std::string_view name) {
  if (name == concert_dtype_name(UINT32_MAX)) return std::nullopt;  // "unknown"
  for (uint32_t value = 1; value < kMaxDtypes; ++value) {
    if (name == concert_dtype_name(value)) return static_cast<Dtype>(value);
  }
  return std::nullopt;
}

std::optional<Degree> ParseDegree(std::string_view name) {
  for (size_t i = 0; i < kDegreeNames.size(); ++i) {
    if (name == kDegreeNames[i]) return static_cast<Degree>(i);
  }
  return std::nullopt;
}

std::optional<Form> ParseForm(std::string_view name) {
  for (const Form form : {Form::kSingle, Form::kStreams, Form::kGroup}) {
    if (name == policies::FormName(form)) return form;
  }
  return std::nullopt;
}

std::optional<Variant::Source> ParseSource(std::string_view name) {
  for (size_t i = 0; i < kSourceNames.size(); ++i) {
    if (name == kSourceNames[i]) return static_cast<Variant::Source>(i);
  }
  return std::nullopt;
}

std::span<const VariantField> VariantFields() {
#define CONCERT_FIELD(member, max)                                                       \
  VariantField {                                                                         \
#member, [](const Variant& variant) { return static_cast<uint32_t>(variant.member); }, \
        [](Variant& variant, uint32_t value) {                                           \
          variant.member = static_cast<decltype(Variant::member)>(value);                \
        },                                                                               \
        max \
  }
  static constexpr std::array kFields = {CONCERT_FIELD(sm_budget, kMaxSms),
                                         CONCERT_FIELD(tile_m, 1024),
                                         CONCERT_FIELD(tile_n, 1024),
                                         CONCERT_FIELD(tile_k, 1024),
                                         CONCERT_FIELD(cluster_m, 64),
                                         CONCERT_FIELD(cluster_n, 64),
                                         CONCERT_FIELD(stages, 64),
                                         CONCERT_FIELD(split_k, 1024),
                                         CONCERT_FIELD(algo_id, UINT16_MAX),
                                         CONCERT_FIELD(tile_id, UINT16_MAX),
                                         CONCERT_FIELD(stages_id, UINT16_MAX),
                                         CONCERT_FIELD(cluster_id, UINT16_MAX),
                                         CONCERT_FIELD(inner_id, UINT16_MAX),
                                         CONCERT_FIELD(reduction, UINT16_MAX),
                                         CONCERT_FIELD(swizzle, UINT16_MAX),
                                         CONCERT_FIELD(custom, UINT16_MAX)};
#undef CONCERT_FIELD
  return kFields;
}

std::string VariantToJson(const Variant& variant) {
  nlohmann::ordered_json object = {{"source", SourceName(variant.source)},
                                   {"dtype", DtypeName(variant.dtype)}};
  for (const VariantField& field : VariantFields()) {
    if (field.get(variant) != 0) object[std::string(field.name)] = field.get(variant);
  }
  return object.dump();
}

absl::StatusOr<Variant> VariantFromJson(std::string_view text) {
  if (text.size() > kMaxVariantJson) {
    return absl::InvalidArgumentError(
        absl::StrCat("the variant has ", text.size(), " bytes; it may have ", kMaxVariantJson));
  }
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("the variant is not a JSON object");
  const auto name = [&](const char* key) -> std::string {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const auto source = ParseSource(name("source"));
  const auto dtype = ParseDtype(name("dtype"));
  if (!source || !dtype)
    return absl::InvalidArgumentError("the variant's source or dtype is missing or unknown");
  Variant variant{.source = *source, .dtype = *dtype};
  for (const VariantField& field : VariantFields()) {
    const auto found = object.find(std::string(field.name));
    if (found == object.end()) continue;
    if (!found->is_number_unsigned() || found->get<uint64_t>() > field.max) {
      return absl::InvalidArgumentError(
          absl::StrCat("the variant's ", View(field.name), " must be 0 to ", field.max));
    }
    field.set(variant, found->get<uint32_t>());
  }
  return variant;
}

}  // namespace concert::daemon
