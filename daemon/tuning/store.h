// The tuning store: measured rows in SQLite, by environment and key. Nothing that a file holds can
// crash the daemon or change a result: a file that is no store of ours is moved aside, a row that
// cannot be right is skipped and counted, and both sizes and counts are bounded.
//
// Thread-safe. Several processes may have the same file open (WAL).
#ifndef CONCERT_DAEMON_TUNING_STORE_H_
#define CONCERT_DAEMON_TUNING_STORE_H_

#include <sqlite3.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/tuning/curve_row.h"
#include "daemon/tuning/environment.h"
#include "daemon/tuning/row.h"

namespace concert::daemon {

class Store {
 public:
  static constexpr int kMaxRows = 65'536;        // of one environment that are read
  static constexpr int kMaxTotalRows = 262'144;  // of all environments that are kept
  static constexpr int kMaxCurves = 4096;        // of all environments
  // A larger file is no store of ours: kMaxTotalRows rows fit, at less than 1 KB each.
  static constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

  // Never fails: where `path` cannot be used (no directory, read-only, not writable), the store
  // lives in memory only and warning() says why. A corrupt or foreign file is renamed to
  // PATH.corrupt-N and an empty store takes its place. Logs both, once.
  static std::unique_ptr<Store> Open(const std::string& path);
  // For tests, and where nothing should be kept.
  static std::unique_ptr<Store> OpenInMemory();
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const std::string& path() const { return path_; }
  bool persistent() const { return persistent_; }
  const std::string& warning() const { return warning_; }          // why it is not persistent
  const std::string& quarantined() const { return quarantined_; }  // what was moved aside, if any

  enum class PutResult { kInserted, kReplaced, kKept };
  // Writes a measurement unless the one it would replace is as good (Replaces). kKept: that one
  // stays. INVALID_ARGUMENT for a row that CheckRow refuses, RESOURCE_EXHAUSTED at kMaxTotalRows.
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
  // at kMaxCurves.
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
  class Statement;

  explicit Store(std::string path) : path_(std::move(path)) {}
  absl::Status Connect(const std::string& file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Prepare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckContents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Execute(const char* sql) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Disconnect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OpenFile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Quarantine(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Error(const char* what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ids of rows of `environment`, at most kMaxRows.
  std::vector<int64_t> RowIds(const Environment& environment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The row's id, or 0.
  int64_t Find(const Environment& environment, const policies::TunedKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<StoredRow> Read(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Full() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(const Environment& environment, const StoredRow& row, int64_t id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteEnvironment(const Environment& environment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Undone if `write` fails.
  absl::StatusOr<PutResult> InTransaction(absl::FunctionRef<absl::StatusOr<PutResult>()> write)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<PutResult> ReplaceRow(const Environment& environment, const StoredRow& row)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<PutResult> ReplaceCurve(const Environment& environment, const StoredCurve& stored)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountInvalid(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  bool persistent_ = false;
  std::string warning_, quarantined_;

  absl::Mutex mutex_;
  sqlite3* db_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool logged_invalid_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> invalid_rows_{0}, hits_{0}, misses_{0}, stale_hits_{0};
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_STORE_H_
