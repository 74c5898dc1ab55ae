// What tuning has measured, as policies and devices look it up: immutable, made once from the
// tuning store and replaced as a whole.
#ifndef CONCERT_POLICIES_COST_TUNED_TABLE_H_
#define CONCERT_POLICIES_COST_TUNED_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "policies/seam/form.h"
#include "policies/seam/transport.h"
#include "policies/seam/variant.h"
#include "policies/seam/work.h"

namespace concert::policies {

// What decides between kernels besides the problem.
struct TunedKey {
  Problem problem;
  uint16_t sm_budget = 0;  // 0: all
  Degree degree = Degree::kSolo;
  Form form = Form::kSingle;
  friend bool operator==(const TunedKey&, const TunedKey&) = default;
};

struct TunedRow {
  TunedKey key;
  Variant variant;      // the best found
  float median_us = 0;  // of one GEMM: the co-run set's time divided by its size
  float spread_us = 0;  // p90 - p10
  uint32_t samples = 0;
};

// Lookups take constant time, allocate nothing and may come from any thread.
class TunedTable {
 public:
  TunedTable() = default;
  // Of several rows with one key the last counts. `curves`: of the node's transports, if any were
  // measured.
  explicit TunedTable(std::vector<TunedRow> rows, std::optional<TransportCurves> curves = {});

  // Null: never measured. Valid as long as the table.
  const TunedRow* Find(const TunedKey& key) const;
  // Of all times of the problem, of every budget, degree and form: tables that say the same of a
  // problem have the same, others most likely not. 0: never measured.
  uint64_t TimesHash(const Problem& problem) const;
  std::span<const TunedRow> rows() const { return rows_; }
  bool empty() const { return rows_.empty(); }
  const std::optional<TransportCurves>& curves() const { return curves_; }

 private:
  std::vector<TunedRow> rows_;
  std::optional<TransportCurves> curves_;
  std::vector<uint32_t> buckets_;  // open addressing: row + 1, 0 is empty; a power of two
  struct Times {
    Problem problem;
    uint64_t hash = 0;  // 0: empty
  };
  std::vector<Times> times_;  // open addressing, as buckets_
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_TUNED_TABLE_H_
