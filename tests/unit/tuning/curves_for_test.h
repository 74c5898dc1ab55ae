// A transport's curve with plausible values.
#ifndef CONCERT_TESTS_UNIT_TUNING_CURVES_FOR_TEST_H_
#define CONCERT_TESTS_UNIT_TUNING_CURVES_FOR_TEST_H_

#include "daemon/tuning/curve_row.h"

namespace concert::daemon {

inline StoredCurve CurveFor(policies::Transport transport, int ranks = 2) {
  return {.transport = transport,
          .ranks = ranks,
          .curve = {.floor_us = 21.5,
                    .link_share = {0.8, 0.9, 0.7, 0.85, 0.95},
                    .bytes_per_s_per_sm = 41e9,
                    .small_floor_us = 15.25,
                    .small_bytes = 524'288,
                    .beside_gemm = 1.125,
                    .gemm_per_sms = 0.75,
                    .gemm_per_link = 0.0625},
          .fit_error = 0.03,
          .measured_at_s = 1'790'000'000};
}

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_TUNING_CURVES_FOR_TEST_H_
