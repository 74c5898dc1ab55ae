// The SQLite file of the tuning store: opened so that nothing in it can run code or take more than
// its share, and moved aside if it is no store of ours.
#ifndef CONCERT_DAEMON_TUNING_STORE_DATABASE_H_
#define CONCERT_DAEMON_TUNING_STORE_DATABASE_H_

#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace concert::daemon {

enum class PutResult { kInserted, kReplaced, kKept };

// Not thread-safe.
class StoreDatabase {
 public:
  // A larger file is no store of ours: StoreRows::kMaxTotalRows rows fit, at less than 1 KB each.
  static constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

  // What has become of a file.
  struct Opened {
    bool persistent = false;
    std::string warning;      // why it is not persistent
    std::string quarantined;  // what was moved aside, if any
  };

  StoreDatabase() = default;
  ~StoreDatabase() { Disconnect(); }
  StoreDatabase(const StoreDatabase&) = delete;
  StoreDatabase& operator=(const StoreDatabase&) = delete;

  // Either comes first, once. Never fails, as Store::Open.
  Opened Open(const std::string& path);
  void OpenInMemory();

  sqlite3* handle() const { return db_; }
  absl::Status Execute(const char* sql);
  // Undone if `write` fails.
  absl::StatusOr<PutResult> InTransaction(absl::FunctionRef<absl::StatusOr<PutResult>()> write);
  // What SQLite has against the last call: DATA_LOSS if the file is to blame, else UNAVAILABLE.
  absl::Status Error(const char* what);

 private:
  absl::Status Connect(const std::string& file);
  void Disconnect();
  absl::Status Prepare();
  // The file's new name.
  absl::StatusOr<std::string> MoveAside(const std::string& path, const std::string& why);

  sqlite3* db_ = nullptr;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_STORE_DATABASE_H_
