#include "daemon/tuning/store.h"

#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/service/log.h"
#include "policies/cost/collective_cost.h"
#include "policies/seam/policy.h"

namespace concert::daemon {
namespace {

using policies::TunedKey;

constexpr int kBusyTimeoutMs = 2000;
constexpr int kMaxValueBytes = 64 << 10;  // of any value that SQLite reads for us
constexpr int kMaxQuarantined = 99;

// Compared letter by letter with what a file has, so that nothing in it can run code of its own:
// no triggers, no views, no generated columns.
constexpr char kCurvesTable[] =
    "CREATE TABLE curves(id INTEGER PRIMARY KEY, environment TEXT, transport TEXT, ranks INTEGER, "
    "curve TEXT, fit_error REAL, measured_at_s INTEGER, UNIQUE(environment, transport, ranks))";
constexpr char kEnvironmentsTable[] =
    "CREATE TABLE environments(name TEXT PRIMARY KEY, description TEXT)";
constexpr char kTunedTable[] =
    "CREATE TABLE tuned(id INTEGER PRIMARY KEY, environment TEXT, m INTEGER, n INTEGER, "
    "k INTEGER, batch INTEGER, dtype TEXT, sm_budget INTEGER, degree TEXT, form TEXT, "
    "variant TEXT, median_us REAL, spread_us REAL, samples INTEGER, runner_up TEXT, "
    "runner_up_us REAL, measured_at_s INTEGER, stale INTEGER, "
    "UNIQUE(environment, m, n, k, batch, dtype, sm_budget, degree, form))";
constexpr char kKeyMatches[] =
    "environment = ? AND m = ? AND n = ? AND k = ? AND batch = ? AND dtype = ? AND "
    "sm_budget = ? AND degree = ? AND form = ?";

// Of the file and what SQLite keeps beside it.
constexpr const char* kSuffixes[] = {"", "-wal", "-shm"};

bool IsCorruption(int code) {
  return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

std::string Text(std::string_view text) { return std::string(text); }

std::string NameOf(policies::Transport transport) {
  return Text(policies::kTransportNames[static_cast<size_t>(transport)]);
}

}  // namespace

// A prepared statement. Columns and parameters are bound and read in order.
class Store::Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) {
    code_ = sqlite3_prepare_v2(db, sql.c_str(), -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& Bind(double value) {
    sqlite3_bind_double(statement_, ++bound_, value);
    return *this;
  }
  Statement& Bind(const std::string& value) {
    sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }
  Statement& Bind(const Environment& environment, const TunedKey& key) {
    return Bind(environment.name)
        .Bind(int64_t{key.problem.m})
        .Bind(int64_t{key.problem.n})
        .Bind(int64_t{key.problem.k})
        .Bind(int64_t{key.problem.batch})
        .Bind(DtypeName(key.problem.dtype))
        .Bind(int64_t{key.sm_budget})
        .Bind(Text(DegreeName(key.degree)))
        .Bind(Text(policies::FormName(key.form)));
  }

  // True: there is a row to read.
  bool Step() {
    read_ = 0;
    if (statement_ == nullptr) return false;
    code_ = sqlite3_step(statement_);
    return code_ == SQLITE_ROW;
  }
  bool failed() const { return code_ != SQLITE_ROW && code_ != SQLITE_DONE; }

  // The next column. A value of another type, or beyond `max`, makes the whole row invalid.
  uint64_t ReadUnsigned(uint64_t max) {
    const int column = read_++;
    const int64_t value = sqlite3_column_int64(statement_, column);
    if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER || value < 0 ||
        static_cast<uint64_t>(value) > max) {
      return Invalid("a number is missing, negative or too large");
    }
    return static_cast<uint64_t>(value);
  }
  float ReadTime() {
    const int column = read_++;
    const int type = sqlite3_column_type(statement_, column);
    const double value = sqlite3_column_double(statement_, column);
    if ((type != SQLITE_FLOAT && type != SQLITE_INTEGER) || !(value >= 0 && value < 1e12)) {
      return static_cast<float>(Invalid("a time is missing, negative or too large"));
    }
    return static_cast<float>(value);
  }
  std::string ReadText() {
    const int column = read_++;
    if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) {
      Invalid("a text is missing");
      return "";
    }
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    const int bytes = sqlite3_column_bytes(statement_, column);
    return text == nullptr ? "" : std::string(text, static_cast<size_t>(bytes));
  }
  template <typename T>
  T ReadName(std::optional<T> (*parse)(std::string_view)) {
    const std::optional<T> value = parse(ReadText());
    if (!value) Invalid("a name is not one of ours");
    return value.value_or(T{});
  }
  template <typename T>
  T ReadJson(absl::StatusOr<T> (*parse)(std::string_view)) {
    const absl::StatusOr<T> value = parse(ReadText());
    if (!value.ok() && status_.ok()) status_ = value.status();
    return value.value_or(T());
  }
  double ReadDouble() {
    const int column = read_++;
    const int type = sqlite3_column_type(statement_, column);
    if (type != SQLITE_FLOAT && type != SQLITE_INTEGER) Invalid("a number is missing");
    return sqlite3_column_double(statement_, column);
  }
  const absl::Status& status() const { return status_; }  // of what was read
  // Of the row that was read; the next one begins well.
  absl::Status TakeStatus() { return std::exchange(status_, absl::OkStatus()); }

 private:
  uint64_t Invalid(const char* why) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(why);
    return 0;
  }

  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK, bound_ = 0, read_ = 0;
  absl::Status status_;
};

std::unique_ptr<Store> Store::Open(const std::string& path) {
  std::unique_ptr<Store> store(new Store(path));
  absl::MutexLock lock(&store->mutex_);
  store->OpenFile();
  return store;
}

std::unique_ptr<Store> Store::OpenInMemory() {
  std::unique_ptr<Store> store(new Store(""));
  absl::MutexLock lock(&store->mutex_);
  CONCERT_CHECK(store->Connect(":memory:").ok());
  return store;
}

Store::~Store() {
  absl::MutexLock lock(&mutex_);
  Disconnect();
}

void Store::Disconnect() {
  sqlite3_close(db_);
  db_ = nullptr;
}

void Store::OpenFile() {
  absl::Status status = Connect(path_);
  if (absl::IsDataLoss(status)) {
    status = Quarantine(std::string(status.message()));
    if (status.ok()) status = Connect(path_);
  }
  persistent_ = status.ok();
  if (persistent_) return;
  warning_ = absl::StrCat("what is tuned is lost when the daemon stops: cannot use ", path_, ": ",
                          status.message());
  Log(LogLevel::kWarning, warning_);
  CONCERT_CHECK(Connect(":memory:").ok());
}

// DATA_LOSS for a file that must be moved aside.
absl::Status Store::Connect(const std::string& file) {
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

absl::Status Store::Prepare() {
  sqlite3_busy_timeout(db_, kBusyTimeoutMs);
  sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  for (const auto& [option, on] : {std::pair{SQLITE_DBCONFIG_DEFENSIVE, 1},
                                   {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                   {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                   {SQLITE_DBCONFIG_ENABLE_VIEW, 0}}) {
    sqlite3_db_config(db_, option, on, nullptr);
  }
  if (absl::Status status = CheckContents(); !status.ok()) return status;
  // Another connection may be writing at this moment; then the mode is set already.
  return Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
}

// Makes the tables in an empty file; DATA_LOSS for a file with anything but ours.
absl::Status Store::CheckContents() {
  // IMMEDIATE: two processes may find the same empty file.
  if (absl::Status status = Execute("BEGIN IMMEDIATE"); !status.ok()) return status;
  std::string found;
  int64_t version = 0;
  {
    Statement schema(db_, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name");
    for (int i = 0; i < 8 && schema.Step(); ++i) absl::StrAppend(&found, schema.ReadText(), ";");
    if (schema.failed()) return Error("read its schema");
    Statement user_version(db_, "PRAGMA user_version");
    if (user_version.Step()) version = static_cast<int64_t>(user_version.ReadUnsigned(INT32_MAX));
  }
  if (found.empty() && version == 0) {
    return Execute(absl::StrCat(kEnvironmentsTable, ";", kTunedTable, ";", kCurvesTable,
                                ";PRAGMA user_version = ", kStoreSchemaVersion, ";COMMIT")
                       .c_str());
  }
  // Curves came later, and rows that were measured before are as good as ever.
  const std::string without_curves = absl::StrCat(kEnvironmentsTable, ";", kTunedTable, ";");
  const std::string complete = absl::StrCat(kCurvesTable, ";", without_curves);
  if ((found != complete && found != without_curves) || version != kStoreSchemaVersion)
    return absl::DataLossError("it is not a tuning store of this version");
  // Not quick_check, which leaves indexes out: a write would find what is wrong with them.
  Statement check(db_, "PRAGMA integrity_check(1)");
  if (!check.Step() || check.ReadText() != "ok") return absl::DataLossError("it is corrupt");
  if (found == without_curves) {
    if (absl::Status status = Execute(kCurvesTable); !status.ok()) return status;
  }
  return Execute("COMMIT");
}

absl::Status Store::Execute(const char* sql) {
  return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus()
                                                                        : Error("write");
}

absl::Status Store::Error(const char* what) {
  const std::string text = absl::StrCat("cannot ", what, ": ", sqlite3_errmsg(db_));
  const int code = sqlite3_errcode(db_);
  // A value beyond SQLITE_LIMIT_LENGTH in the schema is not ours either.
  return IsCorruption(code) || code == SQLITE_TOOBIG ? absl::DataLossError(text)
                                                     : absl::UnavailableError(text);
}

absl::Status Store::Quarantine(const std::string& why) {
  Disconnect();
  for (int i = 1; i <= kMaxQuarantined; ++i) {
    const std::string aside = absl::StrCat(path_, ".corrupt-", i);
    struct stat info;
    if (stat(aside.c_str(), &info) == 0) continue;
    if (std::rename(path_.c_str(), aside.c_str()) != 0) break;
    for (const char* suffix : {"-wal", "-shm"}) {
      std::rename((path_ + suffix).c_str(), (aside + suffix).c_str());
    }
    quarantined_ = aside;
    Log(LogLevel::kWarning, absl::StrCat("the tuning store ", path_, " cannot be used (", why,
                                         "); moved it to ", aside, " and started an empty one"));
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat(why, ", and it could not be moved aside; remove ", path_, ".corrupt-*"));
}

void Store::CountInvalid(const absl::Status& why) {
  invalid_rows_.fetch_add(1, std::memory_order_relaxed);
  if (logged_invalid_) return;
  logged_invalid_ = true;
  Log(LogLevel::kWarning,
      absl::StrCat("the tuning store ", path_, " has rows that cannot be right and are skipped; ",
                   "the first: ", why.message()));
}

std::vector<int64_t> Store::RowIds(const Environment& environment) {
  std::vector<int64_t> ids;
  // Keys only, from the index: a huge value elsewhere in a row is not read.
  Statement select(db_, absl::StrCat("SELECT id FROM tuned WHERE environment = ? ORDER BY m, n, k, "
                                     "batch, dtype, sm_budget, degree, form LIMIT ",
                                     kMaxRows));
  select.Bind(environment.name);
  while (select.Step()) ids.push_back(static_cast<int64_t>(select.ReadUnsigned(INT64_MAX)));
  if (select.failed()) Log(LogLevel::kWarning, std::string(Error("read its rows").message()));
  return ids;
}

int64_t Store::Find(const Environment& environment, const TunedKey& key) {
  Statement select(db_, absl::StrCat("SELECT id FROM tuned WHERE ", kKeyMatches));
  select.Bind(environment, key);
  return select.Step() ? static_cast<int64_t>(select.ReadUnsigned(INT64_MAX)) : 0;
}

absl::StatusOr<StoredRow> Store::Read(int64_t id) {
  Statement select(db_,
                   "SELECT m, n, k, batch, dtype, sm_budget, degree, form, variant, median_us, "
                   "spread_us, samples, runner_up, runner_up_us, measured_at_s, stale FROM tuned "
                   "WHERE id = ?");
  select.Bind(id);
  if (!select.Step()) return absl::InvalidArgumentError("the row cannot be read");
  StoredRow row;
  policies::Problem& problem = row.tuned.key.problem;
  problem.m = static_cast<uint32_t>(select.ReadUnsigned(UINT32_MAX));
  problem.n = static_cast<uint32_t>(select.ReadUnsigned(UINT32_MAX));
  problem.k = static_cast<uint32_t>(select.ReadUnsigned(UINT32_MAX));
  problem.batch = static_cast<uint32_t>(select.ReadUnsigned(UINT32_MAX));
  problem.dtype = select.ReadName(ParseDtype);
  row.tuned.key.sm_budget = static_cast<uint16_t>(select.ReadUnsigned(UINT16_MAX));
  row.tuned.key.degree = select.ReadName(ParseDegree);
  row.tuned.key.form = select.ReadName(ParseForm);
  row.tuned.variant = select.ReadJson(VariantFromJson);
  row.tuned.median_us = select.ReadTime();
  row.tuned.spread_us = select.ReadTime();
  row.tuned.samples = static_cast<uint32_t>(select.ReadUnsigned(UINT32_MAX));
  row.runner_up = select.ReadJson(VariantFromJson);
  row.runner_up_us = select.ReadTime();
  row.measured_at_s = static_cast<int64_t>(select.ReadUnsigned(INT64_MAX));
  row.stale = select.ReadUnsigned(1) != 0;
  if (!select.status().ok()) return select.status();
  if (absl::Status status = CheckRow(row); !status.ok()) return status;
  return row;
}

// Ids count from 1 and are never given up, so that the highest says how many rows there are.
bool Store::Full() {
  Statement select(db_, "SELECT 1 FROM tuned WHERE id >= ? LIMIT 1");
  return select.Bind(int64_t{kMaxTotalRows}).Step();
}

absl::Status Store::WriteEnvironment(const Environment& environment) {
  Statement describe(db_, "INSERT OR REPLACE INTO environments VALUES(?, ?)");
  describe.Bind(environment.name).Bind(environment.description).Step();
  return describe.failed() ? Error("write") : absl::OkStatus();
}

// `id`: of the row that it replaces; 0: none.
absl::Status Store::Write(const Environment& environment, const StoredRow& row, int64_t id) {
  if (absl::Status status = WriteEnvironment(environment); !status.ok()) return status;
  Statement insert(
      db_,
      "INSERT OR REPLACE INTO tuned VALUES(nullif(?, 0), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?, ?, ?, ?)");
  insert.Bind(id)
      .Bind(environment, row.tuned.key)
      .Bind(VariantToJson(row.tuned.variant))
      .Bind(double{row.tuned.median_us})
      .Bind(double{row.tuned.spread_us})
      .Bind(int64_t{row.tuned.samples})
      .Bind(VariantToJson(row.runner_up))
      .Bind(double{row.runner_up_us})
      .Bind(row.measured_at_s)
      .Bind(int64_t{row.stale})
      .Step();
  return insert.failed() ? Error("write") : absl::OkStatus();
}

absl::StatusOr<Store::PutResult> Store::Put(const Environment& environment, const StoredRow& row) {
  if (absl::Status status = CheckRow(row); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  return InTransaction(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ReplaceRow(environment, row); });
}

absl::StatusOr<Store::PutResult> Store::InTransaction(
    absl::FunctionRef<absl::StatusOr<PutResult>()> write) {
  if (absl::Status status = Execute("BEGIN IMMEDIATE"); !status.ok()) return status;
  absl::StatusOr<PutResult> result = write();
  absl::Status status = result.status();
  if (status.ok()) status = Execute("COMMIT");
  if (status.ok()) return result;
  Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::StatusOr<Store::PutResult> Store::ReplaceRow(const Environment& environment,
                                                   const StoredRow& row) {
  const int64_t id = Find(environment, row.tuned.key);
  if (id != 0) {
    const absl::StatusOr<StoredRow> old = Read(id);
    if (old.ok() && !Replaces(row, *old)) return PutResult::kKept;
  } else if (Full()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the tuning store has ", kMaxTotalRows, " rows already; move it aside"));
  }
  if (absl::Status status = Write(environment, row, id); !status.ok()) return status;
  return id != 0 ? PutResult::kReplaced : PutResult::kInserted;
}

std::optional<StoredRow> Store::Get(const Environment& environment, const TunedKey& key) {
  absl::MutexLock lock(&mutex_);
  const int64_t id = Find(environment, key);
  if (id == 0) {
    misses_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  absl::StatusOr<StoredRow> row = Read(id);
  if (!row.ok()) {
    CountInvalid(row.status());
    misses_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  (row->stale ? stale_hits_ : hits_).fetch_add(1, std::memory_order_relaxed);
  return *std::move(row);
}

absl::Status Store::MarkStale(const Environment& environment, const TunedKey& key) {
  absl::MutexLock lock(&mutex_);
  Statement update(db_, absl::StrCat("UPDATE tuned SET stale = 1 WHERE ", kKeyMatches));
  update.Bind(environment, key).Step();
  if (update.failed()) return Error("write");
  return sqlite3_changes(db_) > 0 ? absl::OkStatus() : absl::NotFoundError("there is no such row");
}

std::vector<StoredRow> Store::Rows(const Environment& environment) {
  absl::MutexLock lock(&mutex_);
  std::vector<StoredRow> rows;
  for (const int64_t id : RowIds(environment)) {
    absl::StatusOr<StoredRow> row = Read(id);
    if (row.ok()) {
      rows.push_back(*std::move(row));
    } else {
      CountInvalid(row.status());
    }
  }
  return rows;
}

std::shared_ptr<const policies::TunedTable> Store::LoadTable(
    const Environment& environment, const std::optional<policies::TransportCurves>& curves) {
  std::vector<policies::TunedRow> rows;
  for (const StoredRow& row : Rows(environment)) {
    if (!row.stale) rows.push_back(row.tuned);
  }
  return std::make_shared<const policies::TunedTable>(std::move(rows), curves);
}

absl::StatusOr<Store::PutResult> Store::PutCurve(const Environment& environment,
                                                 const StoredCurve& stored) {
  if (absl::Status status = CheckCurve(stored); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  return InTransaction(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ReplaceCurve(environment, stored); });
}

absl::StatusOr<Store::PutResult> Store::ReplaceCurve(const Environment& environment,
                                                     const StoredCurve& stored) {
  Statement select(db_,
                   "SELECT id, measured_at_s FROM curves WHERE environment = ? AND transport = ? "
                   "AND ranks = ?");
  const bool found = select.Bind(environment.name)
                         .Bind(NameOf(stored.transport))
                         .Bind(int64_t{stored.ranks})
                         .Step();
  const auto id = found ? static_cast<int64_t>(select.ReadUnsigned(INT64_MAX)) : 0;
  // One whose time cannot be read gives way.
  if (found && select.ReadUnsigned(INT64_MAX) > static_cast<uint64_t>(stored.measured_at_s))
    return PutResult::kKept;
  Statement full(db_, "SELECT 1 FROM curves WHERE id >= ? LIMIT 1");
  if (!found && full.Bind(int64_t{kMaxCurves}).Step()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the tuning store has ", kMaxCurves, " curves already; move it aside"));
  }
  if (absl::Status status = WriteEnvironment(environment); !status.ok()) return status;
  Statement insert(db_, "INSERT OR REPLACE INTO curves VALUES(nullif(?, 0), ?, ?, ?, ?, ?, ?)");
  insert.Bind(id)
      .Bind(environment.name)
      .Bind(NameOf(stored.transport))
      .Bind(int64_t{stored.ranks})
      .Bind(CurveToJson(stored.curve))
      .Bind(stored.fit_error)
      .Bind(stored.measured_at_s)
      .Step();
  if (insert.failed()) return Error("write");
  return found ? PutResult::kReplaced : PutResult::kInserted;
}

std::vector<StoredCurve> Store::Curves(const Environment& environment) {
  absl::MutexLock lock(&mutex_);
  std::vector<StoredCurve> curves;
  Statement select(db_,
                   absl::StrCat("SELECT transport, ranks, curve, fit_error, measured_at_s FROM "
                                "curves WHERE environment = ? ORDER BY transport, ranks LIMIT ",
                                kMaxCurves));
  select.Bind(environment.name);
  while (select.Step()) {
    StoredCurve stored;
    stored.transport = select.ReadName(policies::FindTransport);
    stored.ranks = static_cast<int>(select.ReadUnsigned(StoredCurve::kMaxRanks));
    stored.curve = select.ReadJson(CurveFromJson);
    stored.fit_error = select.ReadDouble();
    stored.measured_at_s = static_cast<int64_t>(select.ReadUnsigned(INT64_MAX));
    absl::Status status = select.TakeStatus();
    status.Update(CheckCurve(stored));
    if (status.ok()) {
      curves.push_back(stored);
    } else {
      CountInvalid(status);
    }
  }
  if (select.failed()) Log(LogLevel::kWarning, std::string(Error("read its curves").message()));
  return curves;
}

std::optional<policies::TransportCurves> Store::LoadCurves(const Environment& environment) {
  std::optional<policies::TransportCurves> curves;
  for (const StoredCurve& stored : Curves(environment)) {  // by ranks: the most come last
    if (!curves) curves = policies::CurvesOf(nullptr);
    curves->Of(stored.transport, stored.ranks) = stored.curve;
  }
  return curves;
}

}  // namespace concert::daemon
