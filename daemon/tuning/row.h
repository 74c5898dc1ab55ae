// A row of the tuning store: what was measured for one key. Rows come from files and from the
// network, so every one is checked before it is believed.
#ifndef CONCERT_DAEMON_TUNING_ROW_H_
#define CONCERT_DAEMON_TUNING_ROW_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "policies/cost/tuned_table.h"

namespace concert::daemon {

struct StoredRow {
  policies::TunedRow tuned;
  policies::Variant runner_up;  // source kNone: there was no other candidate
  float runner_up_us = 0;       // as tuned.median_us
  int64_t measured_at_s = 0;    // since 1970
  bool stale = false;           // has drifted: of no use until it is measured again
};

// INVALID_ARGUMENT, naming the field and its value, for a row that no tuner can have written:
// dimensions outside the ring ABI's, times beyond 1 ns and 100 s, numbers of a
// variant beyond any kernel's, a degree that its form cannot have.
absl::Status CheckRow(const StoredRow& row);

// Whether `fresh`, a new measurement of the key, should take the place of `old`: it is faster by
// more than both spreads together (the root of the sum of their squares, since the measurements
// are independent), or `old` is stale.
bool Replaces(const StoredRow& fresh, const StoredRow& old);

// INVALID_ARGUMENT, naming the field, if it is not within bounds, NaN among them.
absl::Status CheckNumber(std::string_view field, double value, double low, double high);

// The names of stores, JSON Lines files and the tuning API.
std::string DtypeName(policies::Dtype dtype);                   // "bf16", as the ring ABI names it
std::string_view DegreeName(policies::Degree degree);           // "solo", "two", ..., "many"
std::string_view SourceName(policies::Variant::Source source);  // "none", "cublaslt", "group"
std::optional<policies::Dtype> ParseDtype(std::string_view name);
std::optional<policies::Degree> ParseDegree(std::string_view name);
std::optional<policies::Form> ParseForm(std::string_view name);  // of policies::FormName
std::optional<policies::Variant::Source> ParseSource(std::string_view name);

// One field of a Variant by name, so that what lists fields exists once.
struct VariantField {
  std::string_view name;
  uint32_t (*get)(const policies::Variant& variant);
  void (*set)(policies::Variant& variant, uint32_t value);  // REQUIRES: value <= max
  uint32_t max;  // beyond what any kernel has; fits the member
};
// All but source and dtype.
std::span<const VariantField> VariantFields();

// {"source":"cublaslt","dtype":"bf16","tile_m":128,...}: fields that are 0 are left out.
std::string VariantToJson(const policies::Variant& variant);
// Any text of at most kMaxVariantJson bytes; keys that it does not know are ignored.
inline constexpr size_t kMaxVariantJson = 1024;
absl::StatusOr<policies::Variant> VariantFromJson(std::string_view text);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_ROW_H_
