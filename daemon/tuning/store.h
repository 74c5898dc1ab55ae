// The tuning store: measured rows in SQLite, by environment and key. Nothing that a file holds can
// crash the daemon or change a result: a file that is no store of ours is moved aside, a row that
// cannot be right is skipped and counted, and both sizes and counts are bounded.
//
// Thread-safe. Several processes may have the same file open (WAL).
#ifndef CONCERT_DAEMON_TUNING_STORE_H_
#define CONCERT_DAEMON_TUNING_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/tuning/curve_row.h"
#include "daemon/tuning/environment.h"
#include "daemon/tuning/row.h"
#include "daemon/tuning/store_database.h"

namespace concert::daemon {

class Store {
 public:
  using PutResult = daemon::PutResult;

  // Never fails: where `path` cannot be used (no directory, read-only, not writable), the store
  // lives in memory only and warning() says why. A corrupt or foreign file is renamed to
  // PATH.corrupt-N and an empty store takes its place. Logs both, once.
  static std::unique_ptr<Store> Open(const std::string& path);
  // For tests, and where nothing should be kept.
  static std::unique_ptr<Store> OpenInMemory();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const std::string& path() const { return path_; }
  bool persistent() const { return opened_.persistent; }
  // Why it is not persistent.
  const std::string& warning() const { return opened_.warning; }
  // What was moved aside, if any.
  const std::string& quarantined() const { return opened_.quarantined; }

  // Writes a measurement unless the one it would replace is as good (Replaces). kKept: that one
  // stays. INVALID_ARGUMENT for a row that CheckRow refuses, RESOURCE_EXHAUSTED at
  // StoreRows::kMaxTotalRows.
  absl::StatusOr<PutResult> Put(const Environment& environment, const StoredRow& row);
  // Nothing: no such row, or one that cannot be right.
  std::optional<StoredRow> Get(const Environment& environment, const policies::TunedKey& key);
  // The row stays for comparison, but is in no table any more. NOT_FOUND if there is none.
  absl::Status MarkStale(const Environment& environment, const policies::TunedKey& key);

  // All valid rows, stale ones too, in the order of their keys.
  std::vector<StoredRow> Rows(const Environment& environment);
  // Those that are not stale, for policies and devices, and `curves`. Never null.
  std::shared_ptr<const policies::TunedTable> LoadTable(
      const Environment& environment, const std::optional<policies::TransportCurves>& curves = {});

  // Writes a curve unless there is one that was measured later, which stays: kKept. `environment`:
  // EnvironmentOfCollectives. INVALID_ARGUMENT for one that CheckCurve refuses, RESOURCE_EXHAUSTED
  // at StoreCurves::kMaxCurves.
  absl::StatusOr<PutResult> PutCurve(const Environment& environment, const StoredCurve& stored);
  // All valid ones, by transport and ranks.
  std::vector<StoredCurve> Curves(const Environment& environment);
  // Those, and constants where there are none; of several for more than two ranks that of the most.
  // Nothing: there are none at all.
  std::optional<policies::TransportCurves> LoadCurves(const Environment& environment);

  // Of all reads so far. Invalid rows are counted each time they are met and logged once.
  uint64_t invalid_rows() const { return invalid_rows_.load(std::memory_order_relaxed); }
  uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }  // of Get
  uint64_t misses() const { return misses_.load(std::memory_order_relaxed); }
  uint64_t stale_hits() const { return stale_hits_.load(std::memory_order_relaxed); }

 private:
  explicit Store(std::string path) : path_(std::move(path)) {}
  void CountInvalid(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  StoreDatabase::Opened opened_;

  absl::Mutex mutex_;
  StoreDatabase database_ ABSL_GUARDED_BY(mutex_);
  bool logged_invalid_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> invalid_rows_{0}, hits_{0}, misses_{0}, stale_hits_{0};
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_STORE_H_
