#include "daemon/tuning/store_curves.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/service/log.h"
#include "daemon/tuning/store_schema.h"
#include "daemon/tuning/store_statement.h"
#include "policies/cost/collective_cost.h"

namespace concert::daemon {
namespace {

std::string NameOf(policies::Transport transport) {
  return std::string(policies::kTransportNames[static_cast<size_t>(transport)]);
}

}  // namespace

absl::StatusOr<PutResult> StoreCurves::Replace(const Environment& environment,
                                               const StoredCurve& stored) {
  StoreStatement select(
      database_.handle(),
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
  StoreStatement full(database_.handle(), "SELECT 1 FROM curves WHERE id >= ? LIMIT 1");
  if (!found && full.Bind(int64_t{kMaxCurves}).Step()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the tuning store has ", kMaxCurves, " curves already; move it aside"));
  }
  if (absl::Status status = WriteEnvironment(environment, database_); !status.ok()) return status;
  StoreStatement insert(database_.handle(),
                        "INSERT OR REPLACE INTO curves VALUES(nullif(?, 0), ?, ?, ?, ?, ?, ?)");
  insert.Bind(id)
      .Bind(environment.name)
      .Bind(NameOf(stored.transport))
      .Bind(int64_t{stored.ranks})
      .Bind(CurveToJson(stored.curve))
      .Bind(stored.fit_error)
      .Bind(stored.measured_at_s)
      .Step();
  if (insert.failed()) return database_.Error("write");
  return found ? PutResult::kReplaced : PutResult::kInserted;
}

std::vector<StoredCurve> StoreCurves::Read(const Environment& environment,
                                           std::vector<absl::Status>& invalid) {
  std::vector<StoredCurve> curves;
  StoreStatement select(
      database_.handle(),
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
      invalid.push_back(status);
    }
  }
  if (select.failed())
    Log(LogLevel::kWarning, std::string(database_.Error("read its curves").message()));
  return curves;
}

}  // namespace concert::daemon
