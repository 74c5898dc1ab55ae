#include "daemon/tuning/store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/service/log.h"
#include "daemon/tuning/store_curves.h"
#include "daemon/tuning/store_rows.h"
#include "policies/cost/collective_cost.h"

namespace concert::daemon {

std::unique_ptr<Store> Store::Open(const std::string& path) {
  std::unique_ptr<Store> store(new Store(path));
  absl::MutexLock lock(&store->mutex_);
  store->opened_ = store->database_.Open(path);
  return store;
}

std::unique_ptr<Store> Store::OpenInMemory() {
  std::unique_ptr<Store> store(new Store(""));
  absl::MutexLock lock(&store->mutex_);
  store->database_.OpenInMemory();
  return store;
}

void Store::CountInvalid(const absl::Status& why) {
  invalid_rows_.fetch_add(1, std::memory_order_relaxed);
  if (logged_invalid_) return;
  logged_invalid_ = true;
  Log(LogLevel::kWarning,
      absl::StrCat("the tuning store ", path_, " has rows that cannot be right and are skipped; ",
                   "the first: ", why.message()));
}

absl::StatusOr<PutResult> Store::Put(const Environment& environment, const StoredRow& row) {
  if (absl::Status status = CheckRow(row); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  StoreRows rows(database_);
  return database_.InTransaction([&] { return rows.Replace(environment, row); });
}

std::optional<StoredRow> Store::Get(const Environment& environment, const policies::TunedKey& key) {
  absl::MutexLock lock(&mutex_);
  StoreRows rows(database_);
  const int64_t id = rows.Find(environment, key);
  if (id == 0) {
    misses_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  absl::StatusOr<StoredRow> row = rows.Read(id);
  if (!row.ok()) {
    CountInvalid(row.status());
    misses_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  (row->stale ? stale_hits_ : hits_).fetch_add(1, std::memory_order_relaxed);
  return *std::move(row);
}

absl::Status Store::MarkStale(const Environment& environment, const policies::TunedKey& key) {
  absl::MutexLock lock(&mutex_);
  return StoreRows(database_).MarkStale(environment, key);
}

std::vector<StoredRow> Store::Rows(const Environment& environment) {
  absl::MutexLock lock(&mutex_);
  StoreRows stored(database_);
  std::vector<StoredRow> rows;
  for (const int64_t id : stored.Ids(environment)) {
    absl::StatusOr<StoredRow> row = stored.Read(id);
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

absl::StatusOr<PutResult> Store::PutCurve(const Environment& environment,
                                          const StoredCurve& stored) {
  if (absl::Status status = CheckCurve(stored); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  StoreCurves curves(database_);
  return database_.InTransaction([&] { return curves.Replace(environment, stored); });
}

std::vector<StoredCurve> Store::Curves(const Environment& environment) {
  absl::MutexLock lock(&mutex_);
  std::vector<absl::Status> invalid;
  std::vector<StoredCurve> curves = StoreCurves(database_).Read(environment, invalid);
  for (const absl::Status& why : invalid) CountInvalid(why);
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
