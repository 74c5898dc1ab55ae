#include "daemon/tuning/store_database.h"

#include <sys/stat.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/service/log.h"
#include "daemon/tuning/store_schema.h"

namespace concert::daemon {
namespace {

constexpr int kBusyTimeoutMs = 2000;
constexpr int kMaxValueBytes = 64 << 10;  // of any value that SQLite reads for us
constexpr int kMaxQuarantined = 99;

// Of the file and what SQLite keeps beside it.
constexpr const char* kSuffixes[] = {"", "-wal", "-shm"};

bool IsCorruption(int code) {
  return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

}  // namespace

StoreDatabase::Opened StoreDatabase::Open(const std::string& path) {
  Opened opened;
  absl::Status status = Connect(path);
  if (absl::IsDataLoss(status)) {
    absl::StatusOr<std::string> aside = MoveAside(path, std::string(status.message()));
    status = aside.status();
    if (status.ok()) {
      opened.quarantined = *std::move(aside);
      status = Connect(path);
    }
  }
  opened.persistent = status.ok();
  if (opened.persistent) return opened;
  opened.warning = absl::StrCat("what is tuned is lost when the daemon stops: cannot use ", path,
                                ": ", status.message());
  Log(LogLevel::kWarning, opened.warning);
  OpenInMemory();
  return opened;
}

void StoreDatabase::OpenInMemory() { CONCERT_CHECK(Connect(":memory:").ok()); }

void StoreDatabase::Disconnect() {
  sqlite3_close(db_);
  db_ = nullptr;
}

// DATA_LOSS for a file that must be moved aside.
absl::Status StoreDatabase::Connect(const std::string& file) {
  Disconnect();
  for (const char* suffix : kSuffixes) {
    struct stat info;
    if (stat((file + suffix).c_str(), &info) != 0) continue;
    if (!S_ISREG(info.st_mode)) return absl::UnavailableError("it is not a regular file");
    if (info.st_size > kMaxFileBytes)
      return absl::DataLossError(absl::StrCat("it has ", info.st_size, " bytes, far too many"));
  }
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  absl::Status status;
  if (sqlite3_open_v2(file.c_str(), &db_, flags, nullptr) != SQLITE_OK) status = Error("open");
  if (status.ok() && sqlite3_db_readonly(db_, "main") == 1)
    status = absl::PermissionDeniedError("it is read-only");
  if (status.ok()) status = Prepare();
  if (!status.ok()) Disconnect();
  return status;
}

absl::Status StoreDatabase::Prepare() {
  sqlite3_busy_timeout(db_, kBusyTimeoutMs);
  sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  for (const auto& [option, on] : {std::pair{SQLITE_DBCONFIG_DEFENSIVE, 1},
                                   {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                   {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                   {SQLITE_DBCONFIG_ENABLE_VIEW, 0}}) {
    sqlite3_db_config(db_, option, on, nullptr);
  }
  if (absl::Status status = CheckSchema(*this); !status.ok()) return status;
  // Another connection may be writing at this moment; then the mode is set already.
  return Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
}

absl::Status StoreDatabase::Execute(const char* sql) {
  return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus()
                                                                        : Error("write");
}

absl::Status StoreDatabase::Error(const char* what) {
  const std::string text = absl::StrCat("cannot ", what, ": ", sqlite3_errmsg(db_));
  const int code = sqlite3_errcode(db_);
  // A value beyond SQLITE_LIMIT_LENGTH in the schema is not ours either.
  return IsCorruption(code) || code == SQLITE_TOOBIG ? absl::DataLossError(text)
                                                     : absl::UnavailableError(text);
}

absl::StatusOr<PutResult> StoreDatabase::InTransaction(
    absl::FunctionRef<absl::StatusOr<PutResult>()> write) {
  if (absl::Status status = Execute("BEGIN IMMEDIATE"); !status.ok()) return status;
  absl::StatusOr<PutResult> result = write();
  absl::Status status = result.status();
  if (status.ok()) status = Execute("COMMIT");
  if (status.ok()) return result;
  Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::StatusOr<std::string> StoreDatabase::MoveAside(const std::string& path,
                                                     const std::string& why) {
  Disconnect();
  for (int i = 1; i <= kMaxQuarantined; ++i) {
    const std::string aside = absl::StrCat(path, ".corrupt-", i);
    struct stat info;
    if (stat(aside.c_str(), &info) == 0) continue;
    if (std::rename(path.c_str(), aside.c_str()) != 0) break;
    for (const char* suffix : {"-wal", "-shm"}) {
      std::rename((path + suffix).c_str(), (aside + suffix).c_str());
    }
    Log(LogLevel::kWarning, absl::StrCat("the tuning store ", path, " cannot be used (", why,
                                         "); moved it to ", aside, " and started an empty one"));
    return aside;
  }
  return absl::UnavailableError(
      absl::StrCat(why, ", and it could not be moved aside; remove ", path, ".corrupt-*"));
}

}  // namespace concert::daemon
