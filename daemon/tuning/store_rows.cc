#include "daemon/tuning/store_rows.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/service/log.h"
#include "daemon/tuning/store_schema.h"
#include "daemon/tuning/store_statement.h"
#include "policies/seam/policy.h"

namespace concert::daemon {
namespace {

using policies::TunedKey;

constexpr char kKeyMatches[] =
    "environment = ? AND m = ? AND n = ? AND k = ? AND batch = ? AND dtype = ? AND "
    "sm_budget = ? AND degree = ? AND form = ?";

StoreStatement& BindKey(StoreStatement& statement, const Environment& environment,
                        const TunedKey& key) {
  return statement.Bind(environment.name)
      .Bind(int64_t{key.problem.m})
      .Bind(int64_t{key.problem.n})
      .Bind(int64_t{key.problem.k})
      .Bind(int64_t{key.problem.batch})
      .Bind(DtypeName(key.problem.dtype))
      .Bind(int64_t{key.sm_budget})
      .Bind(std::string(DegreeName(key.degree)))
      .Bind(std::string(policies::FormName(key.form)));
}

}  // namespace

std::vector<int64_t> StoreRows::Ids(const Environment& environment) {
  std::vector<int64_t> ids;
  // Keys only, from the index: a huge value elsewhere in a row is not read.
  StoreStatement select(database_.handle(),
                        absl::StrCat("SELECT id FROM tuned WHERE environment = ? ORDER BY m, n, k, "
                                     "batch, dtype, sm_budget, degree, form LIMIT ",
                                     kMaxRows));
  select.Bind(environment.name);
  while (select.Step()) ids.push_back(static_cast<int64_t>(select.ReadUnsigned(INT64_MAX)));
  if (select.failed())
    Log(LogLevel::kWarning, std::string(database_.Error("read its rows").message()));
  return ids;
}

int64_t StoreRows::Find(const Environment& environment, const TunedKey& key) {
  StoreStatement select(database_.handle(),
                        absl::StrCat("SELECT id FROM tuned WHERE ", kKeyMatches));
  BindKey(select, environment, key);
  return select.Step() ? static_cast<int64_t>(select.ReadUnsigned(INT64_MAX)) : 0;
}

absl::StatusOr<StoredRow> StoreRows::Read(int64_t id) {
  StoreStatement select(
      database_.handle(),
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
bool StoreRows::Full() {
  StoreStatement select(database_.handle(), "SELECT 1 FROM tuned WHERE id >= ? LIMIT 1");
  return select.Bind(int64_t{kMaxTotalRows}).Step();
}

// `id`: of the row that it replaces; 0: none.
absl::Status StoreRows::Write(const Environment& environment, const StoredRow& row, int64_t id) {
  if (absl::Status status = WriteEnvironment(environment, database_); !status.ok()) return status;
  StoreStatement insert(
      database_.handle(),
      "INSERT OR REPLACE INTO tuned VALUES(nullif(?, 0), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?, ?, ?, ?)");
  BindKey(insert.Bind(id), environment, row.tuned.key)
      .Bind(VariantToJson(row.tuned.variant))
      .Bind(double{row.tuned.median_us})
      .Bind(double{row.tuned.spread_us})
      .Bind(int64_t{row.tuned.samples})
      .Bind(VariantToJson(row.runner_up))
      .Bind(double{row.runner_up_us})
      .Bind(row.measured_at_s)
      .Bind(int64_t{row.stale})
      .Step();
  return insert.failed() ? database_.Error("write") : absl::OkStatus();
}

absl::StatusOr<PutResult> StoreRows::Replace(const Environment& environment, const StoredRow& row) {
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

absl::Status StoreRows::MarkStale(const Environment& environment, const TunedKey& key) {
  StoreStatement update(database_.handle(),
                        absl::StrCat("UPDATE tuned SET stale = 1 WHERE ", kKeyMatches));
  BindKey(update, environment, key).Step();
  if (update.failed()) return database_.Error("write");
  return sqlite3_changes(database_.handle()) > 0 ? absl::OkStatus()
                                                 : absl::NotFoundError("there is no such row");
}

}  // namespace concert::daemon
