#include "policies/cost/tuned_table.h"

#include <bit>
#include <utility>

#include "policies/seam/hash.h"

namespace concert::policies {
namespace {

uint64_t Hash(const TunedKey& key) {
  return Chain(HashProblem(key.problem), uint64_t{key.sm_budget} << 16 |
                                             static_cast<uint64_t>(key.degree) << 8 |
                                             static_cast<uint64_t>(key.form));
}

}  // namespace

TunedTable::TunedTable(std::vector<TunedRow> rows, std::optional<TransportCurves> curves)
    : rows_(std::move(rows)), curves_(curves) {
  if (rows_.empty()) return;
  buckets_.resize(std::bit_ceil(2 * rows_.size()));
  for (size_t row = 0; row < rows_.size(); ++row) {
    size_t bucket = Hash(rows_[row].key) & (buckets_.size() - 1);
    while (buckets_[bucket] != 0 && rows_[buckets_[bucket] - 1].key != rows_[row].key) {
      bucket = (bucket + 1) & (buckets_.size() - 1);
    }
    buckets_[bucket] = static_cast<uint32_t>(row + 1);
  }
  times_.resize(buckets_.size());
  for (size_t row = 0; row < rows_.size(); ++row) {
    const TunedKey& key = rows_[row].key;
    if (Find(key) != &rows_[row]) continue;  // another row counts
    size_t place = HashProblem(key.problem) & (times_.size() - 1);
    while (times_[place].hash != 0 && times_[place].problem != key.problem) {
      place = (place + 1) & (times_.size() - 1);
    }
    // A sum, so that the order of rows does not matter. Odd, so that one row is never 0.
    times_[place].problem = key.problem;
    times_[place].hash += Chain(Hash(key), std::bit_cast<uint32_t>(rows_[row].median_us)) | 1;
  }
}

uint64_t TunedTable::TimesHash(const Problem& problem) const {
  if (times_.empty()) return 0;
  size_t place = HashProblem(problem) & (times_.size() - 1);
  while (times_[place].hash != 0) {
    if (times_[place].problem == problem) return times_[place].hash;
    place = (place + 1) & (times_.size() - 1);
  }
  return 0;
}

const TunedRow* TunedTable::Find(const TunedKey& key) const {
  if (buckets_.empty()) return nullptr;
  size_t bucket = Hash(key) & (buckets_.size() - 1);
  while (buckets_[bucket] != 0) {
    const TunedRow& row = rows_[buckets_[bucket] - 1];
    if (row.key == key) return &row;
    bucket = (bucket + 1) & (buckets_.size() - 1);
  }
  return nullptr;
}

}  // namespace concert::policies
