// Curves of transports in the tuning store.
#ifndef CONCERT_DAEMON_TUNING_STORE_CURVES_H_
#define CONCERT_DAEMON_TUNING_STORE_CURVES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/tuning/curve_row.h"
#include "daemon/tuning/environment.h"
#include "daemon/tuning/store_database.h"

namespace concert::daemon {

// A view of the database, which must outlive it. Not thread-safe.
class StoreCurves {
 public:
  static constexpr int kMaxCurves = 4096;  // of all environments

  explicit StoreCurves(StoreDatabase& database) : database_(database) {}

  // As Store::PutCurve, of a curve that CheckCurve has let pass. Part of a transaction.
  absl::StatusOr<PutResult> Replace(const Environment& environment, const StoredCurve& stored);
  // All valid ones, by transport and ranks. `invalid`: what is wrong with others.
  std::vector<StoredCurve> Read(const Environment& environment, std::vector<absl::Status>& invalid);

 private:
  StoreDatabase& database_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_STORE_CURVES_H_
