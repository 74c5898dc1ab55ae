// Tuned rows with plausible values.
#ifndef CONCERT_TESTS_UNIT_TUNING_ROWS_FOR_TEST_H_
#define CONCERT_TESTS_UNIT_TUNING_ROWS_FOR_TEST_H_

#include "daemon/tuning/row.h"

namespace concert::daemon {

inline StoredRow RowFor(uint32_t m, float median_us = 10, float spread_us = 1) {
  StoredRow row;
  row.tuned.key = {.problem = {.m = m, .n = 4096, .k = 1024},
                   .sm_budget = 0,
                   .degree = policies::Degree::kEight,
                   .form = policies::Form::kStreams};
  row.tuned.variant = {.source = policies::Variant::Source::kCublasLt,
                       .sm_budget = 66,
                       .tile_m = 128,
                       .tile_n = 256,
                       .cluster_m = 2,
                       .split_k = 3,
                       .algo_id = 66,
                       .custom = 65535};
  row.tuned.median_us = median_us;
  row.tuned.spread_us = spread_us;
  row.tuned.samples = 16;
  row.runner_up = row.tuned.variant;
  row.runner_up.tile_m = 64;
  row.runner_up_us = median_us * 1.1f;
  row.measured_at_s = 1'790'000'000;
  return row;
}

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_TUNING_ROWS_FOR_TEST_H_
