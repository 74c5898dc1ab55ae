#include "policies/tuned_table.h"

#include <bit>
#include <utility>

namespace concert::policies {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

uint64_t Hash(const TunedKey& key) {
  const Problem& problem = key.problem;
  uint64_t hash = Mix(0, uint64_t{problem.m} << 32 | problem.n);
  hash = Mix(hash, uint64_t{problem.k} << 32 | problem.batch);
  return Mix(hash, uint64_t{key.sm_budget} << 24 | static_cast<uint64_t>(problem.dtype) << 16 |
                       static_cast<uint64_t>(key.company) << 8 | static_cast<uint64_t>(key.form));
}

}  // namespace

TunedTable::TunedTable(std::vector<TunedRow> rows) : rows_(std::move(rows)) {
  if (rows_.empty()) return;
  buckets_.resize(std::bit_ceil(2 * rows_.size()));
  for (size_t row = 0; row < rows_.size(); ++row) {
    size_t bucket = Hash(rows_[row].key) & (buckets_.size() - 1);
    while (buckets_[bucket] != 0 && rows_[buckets_[bucket] - 1].key != rows_[row].key) {
      bucket = (bucket + 1) & (buckets_.size() - 1);
    }
    buckets_[bucket] = static_cast<uint32_t>(row + 1);
  }
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
