// Rows of tuned kernels in the tuning store.
#ifndef CONCERT_DAEMON_TUNING_STORE_ROWS_H_
#define CONCERT_DAEMON_TUNING_STORE_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/tuning/environment.h"
#include "daemon/tuning/row.h"
#include "daemon/tuning/store_database.h"
#include "policies/cost/tuned_table.h"

namespace concert::daemon {

// A view of the database, which must outlive it. Not thread-safe.
class StoreRows {
 public:
  static constexpr int kMaxRows = 65'536;        // of one environment that are read
  static constexpr int kMaxTotalRows = 262'144;  // of all environments that are kept

  explicit StoreRows(StoreDatabase& database) : database_(database) {}

  // Of the environment's rows, in the order of their keys; at most kMaxRows.
  std::vector<int64_t> Ids(const Environment& environment);
  // The row's id, or 0.
  int64_t Find(const Environment& environment, const policies::TunedKey& key);
  // INVALID_ARGUMENT for a row that cannot be right.
  absl::StatusOr<StoredRow> Read(int64_t id);
  // As Store::Put, of a row that CheckRow has let pass. Part of a transaction.
  absl::StatusOr<PutResult> Replace(const Environment& environment, const StoredRow& row);
  // NOT_FOUND if there is none.
  absl::Status MarkStale(const Environment& environment, const policies::TunedKey& key);

 private:
  bool Full();
  absl::Status Write(const Environment& environment, const StoredRow& row, int64_t id);

  StoreDatabase& database_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_STORE_ROWS_H_
