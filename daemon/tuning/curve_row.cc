#include "daemon/tuning/curve_row.h"

#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/tuning/row.h"

namespace concert::daemon {
namespace {

using policies::CollectiveKind;
using policies::TransportCurve;

// Beyond what any link, SM or launch has.
constexpr double kLongestFloorUs = 1e6;
constexpr double kLeastShare = 1e-3, kMostShare = 10;
constexpr double kMostBytesPerS = 1e14;
constexpr double kMostSmallBytes = 1 << 30;
constexpr double kMostTimes = 1e3;

template <CollectiveKind kind>
constexpr CurveField LinkShare(std::string_view name) {
  return {name,
          [](const TransportCurve& curve) { return curve.link_share[static_cast<size_t>(kind)]; },
          [](TransportCurve& curve, double value) {
            curve.link_share[static_cast<size_t>(kind)] = value;
          },
          kLeastShare, kMostShare};
}

}  // namespace

std::span<const CurveField> CurveFields() {
#define CONCERT_FIELD(member, low, high)                                                         \
  CurveField {                                                                                   \
#member, [](const TransportCurve& curve) { return static_cast<double>(curve.member); },        \
        [](TransportCurve& curve, double value) {                                                \
          curve.member = static_cast<decltype(TransportCurve::member)>(value);                   \
        },                                                                                       \
        low, high \
  }
  static constexpr std::array kFields = {
      CONCERT_FIELD(floor_us, 0, kLongestFloorUs),
      LinkShare<CollectiveKind::kAllReduce>("all_reduce_link_share"),
      LinkShare<CollectiveKind::kAllGather>("all_gather_link_share"),
      LinkShare<CollectiveKind::kReduceScatter>("reduce_scatter_link_share"),
      LinkShare<CollectiveKind::kAllToAll>("all_to_all_link_share"),
      LinkShare<CollectiveKind::kBroadcast>("broadcast_link_share"),
      CONCERT_FIELD(bytes_per_s_per_sm, 0, kMostBytesPerS),
      CONCERT_FIELD(small_floor_us, 0, kLongestFloorUs),
      CONCERT_FIELD(small_bytes, 0, kMostSmallBytes),
      CONCERT_FIELD(beside_gemm, 1 / kMostTimes, kMostTimes),
      CONCERT_FIELD(gemm_per_sms, 0, kMostTimes),
      CONCERT_FIELD(gemm_per_link, 0, kMostTimes)};
#undef CONCERT_FIELD
  return kFields;
}

absl::Status CheckCurve(const StoredCurve& stored) {
  if (static_cast<int>(stored.transport) >= policies::kTransportCount)
    return absl::InvalidArgumentError("transport is not one of nccl, p2p, ce and hybrid");
  for (const absl::Status& status :
       {CheckNumber("ranks", stored.ranks, StoredCurve::kMinRanks, StoredCurve::kMaxRanks),
        CheckNumber("fit_error", stored.fit_error, 0, kMostTimes),
        CheckNumber("measured_at_s", static_cast<double>(stored.measured_at_s), 0, 1e11)}) {
    if (!status.ok()) return status;
  }
  for (const CurveField& field : CurveFields()) {
    const double value = field.get(stored.curve);
    if (absl::Status status = CheckNumber(field.name, value, field.low, field.high); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

std::string CurveToJson(const TransportCurve& curve) {
  nlohmann::ordered_json object;
  for (const CurveField& field : CurveFields()) object[std::string(field.name)] = field.get(curve);
  return object.dump();
}

absl::StatusOr<TransportCurve> CurveFromJson(std::string_view text) {
  if (text.size() > kMaxCurveJson) {
    return absl::InvalidArgumentError(
        absl::StrCat("the curve has ", text.size(), " bytes; it may have ", kMaxCurveJson));
  }
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("the curve is not a JSON object");
  TransportCurve curve;
  for (const CurveField& field : CurveFields()) {
    const auto found = object.find(std::string(field.name));
    if (found == object.end() || !found->is_number()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the curve's ", std::string(field.name), " is missing or no number"));
    }
    const auto value = found->get<double>();
    if (absl::Status status = CheckNumber(field.name, value, field.low, field.high); !status.ok())
      return status;
    field.set(curve, value);
  }
  return curve;
}

}  // namespace concert::daemon
