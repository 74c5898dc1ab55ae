// A transport's measured curve in the tuning store. Curves come from files and from the network, so
// every one is checked before it is believed.
#ifndef CONCERT_DAEMON_TUNING_CURVE_ROW_H_
#define CONCERT_DAEMON_TUNING_CURVE_ROW_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "policies/seam/transport.h"

namespace concert::daemon {

struct StoredCurve {
  static constexpr int kMinRanks = 2, kMaxRanks = 64;

  policies::Transport transport = policies::Transport::kNccl;
  int ranks = 2;  // between which it was measured
  policies::TransportCurve curve;
  double fit_error = 0;       // root of the mean square of ln(predicted / measured)
  int64_t measured_at_s = 0;  // since 1970
};

// INVALID_ARGUMENT, naming the field and its value, for one that nobody can have measured.
absl::Status CheckCurve(const StoredCurve& stored);

// One number of a curve by name, so that what lists them exists once: store, files and API.
struct CurveField {
  std::string_view name;
  double (*get)(const policies::TransportCurve& curve);
  void (*set)(policies::TransportCurve& curve, double value);  // REQUIRES: low <= value <= high
  double low, high;
};
std::span<const CurveField> CurveFields();

// {"floor_us":23.4,"all_reduce_link_share":0.84,...}.
std::string CurveToJson(const policies::TransportCurve& curve);
// Any text of at most kMaxCurveJson bytes. Every field must be there, within its bounds.
inline constexpr size_t kMaxCurveJson = 2048;
absl::StatusOr<policies::TransportCurve> CurveFromJson(std::string_view text);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_CURVE_ROW_H_
