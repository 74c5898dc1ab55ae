#include "daemon/tuning/store_schema.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/tuning/environment.h"
#include "daemon/tuning/store_database.h"
#include "daemon/tuning/store_statement.h"

namespace concert::daemon {
namespace {

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

}  // namespace

absl::Status CheckSchema(StoreDatabase& database) {
  // IMMEDIATE: two processes may find the same empty file.
  if (absl::Status status = database.Execute("BEGIN IMMEDIATE"); !status.ok()) return status;
  std::string found;
  int64_t version = 0;
  {
    StoreStatement schema(database.handle(),
                          "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name");
    for (int i = 0; i < 8 && schema.Step(); ++i) absl::StrAppend(&found, schema.ReadText(), ";");
    if (schema.failed()) return database.Error("read its schema");
    StoreStatement user_version(database.handle(), "PRAGMA user_version");
    if (user_version.Step()) version = static_cast<int64_t>(user_version.ReadUnsigned(INT32_MAX));
  }
  if (found.empty() && version == 0) {
    return database.Execute(absl::StrCat(kEnvironmentsTable, ";", kTunedTable, ";", kCurvesTable,
                                         ";PRAGMA user_version = ", kStoreSchemaVersion, ";COMMIT")
                                .c_str());
  }
  // Curves came later, and rows that were measured before are as good as ever.
  const std::string without_curves = absl::StrCat(kEnvironmentsTable, ";", kTunedTable, ";");
  const std::string complete = absl::StrCat(kCurvesTable, ";", without_curves);
  if ((found != complete && found != without_curves) || version != kStoreSchemaVersion)
    return absl::DataLossError("it is not a tuning store of this version");
  // Not quick_check, which leaves indexes out: a write would find what is wrong with them.
  StoreStatement check(database.handle(), "PRAGMA integrity_check(1)");
  if (!check.Step() || check.ReadText() != "ok") return absl::DataLossError("it is corrupt");
  if (found == without_curves) {
    if (absl::Status status = database.Execute(kCurvesTable); !status.ok()) return status;
  }
  return database.Execute("COMMIT");
}

absl::Status WriteEnvironment(const Environment& environment, StoreDatabase& database) {
  StoreStatement describe(database.handle(), "INSERT OR REPLACE INTO environments VALUES(?, ?)");
  describe.Bind(environment.name).Bind(environment.description).Step();
  return describe.failed() ? database.Error("write") : absl::OkStatus();
}

}  // namespace concert::daemon
