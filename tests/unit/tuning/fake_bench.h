// A Bench without time: the caller says what a co-run set takes; every call is counted.
#ifndef CONCERT_TESTS_UNIT_TUNING_FAKE_BENCH_H_
#define CONCERT_TESTS_UNIT_TUNING_FAKE_BENCH_H_

#include <functional>
#include <vector>

#include "daemon/tuning/measure.h"

namespace concert::daemon {

// Variants are told apart by tile_m: 0 is the default, then 1, 2, ...
class FakeBench final : public Bench {
 public:
  int variants = 8;
  bool per_budget = true;      // variants of another budget are others
  int samples_left = 1 << 30;  // then CANCELLED, as at the end of a budget
  std::function<float(std::span<const Candidate>, policies::Form, int)> time_us;
  std::vector<std::pair<std::vector<Candidate>, int>> calls;  // set and samples

  std::vector<policies::Variant> Candidates(const policies::Problem& problem,
                                            int sm_budget) override {
    std::vector<policies::Variant> list;
    for (int i = 0; i < variants; ++i) {
      list.push_back({.source = policies::Variant::Source::kCublasLt,
                      .dtype = problem.dtype,
                      .sm_budget = static_cast<uint16_t>(per_budget ? sm_budget : 0),
                      .tile_m = static_cast<uint16_t>(i)});
    }
    return list;
  }

  absl::StatusOr<Measurement> Measure(std::span<const Candidate> set, policies::Form form,
                                      int sm_budget, int samples) override {
    calls.push_back({{set.begin(), set.end()}, samples});
    if ((samples_left -= samples) < 0) return absl::CancelledError("out of time");
    const float us = time_us(set, form, sm_budget);
    if (us <= 0) return absl::InvalidArgumentError("cannot run");
    return Measurement{.median_us = us, .p10_us = us * 0.99f, .p90_us = us * 1.01f};
  }
};

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_TUNING_FAKE_BENCH_H_
