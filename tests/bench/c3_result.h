// What suite "c3" makes of its measurements. Pure.
#ifndef CONCERT_TESTS_BENCH_C3_RESULT_H_
#define CONCERT_TESTS_BENCH_C3_RESULT_H_

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/plan_log.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/speedup_summary.h"

namespace concert::bench {

// Slower than serial by more than this is a loss.
inline constexpr double kC3LossTolerance = 0.02;

// Microseconds of each round, by contender.
using Samples = std::map<std::string, std::vector<double>>;

struct OverlapSamples {
  Samples together;    // until all ranks have seen the end of both
  Samples gemm_alone;  // of all GEMMs of a GPU, the slowest GPU
  Samples collective_alone;
};

// One scenario's entry:
//   class                        "all_gather on 2 GPUs"
//   times_us                     of `together`, and of the fastest alone as gemm_alone and
//                                collective_alone
//   alone_us                     "gemm" and "collective": each contender's median
//   ideal_us                     max(Tg, Tc) of these
//   bound_us                     the same, but at least the time that the bytes of both, each moved
//                                once, take the memory
//   share_of_ideal, share_of_bound  each contender's (serial - t) / (serial - ideal or bound); none
//                                where serial is as fast as that
//   oracle, within_3_percent     the fastest of concert and `forms`, and whether concert comes that
//                                close; of everybody, and left out, where there are no forms
//   speedup_over                 as in SpeedupOver
nlohmann::json DescribeOverlap(const OverlapScenario& scenario, const OverlapSamples& samples,
                               const Rivals& rivals, const std::vector<std::string>& forms,
                               double memory_bytes_per_s);

// What concert's daemon thought of runs of both, from all plans of them: "plan" and
// "collective_plan", the newest sentences; "predicted_us", the longer of what GPU 0's GEMMs and its
// part of the collective were predicted to take; "prediction_error": |predicted / `actual_us` - 1|.
// Empty where a prediction is missing.
nlohmann::json DescribeOverlapPlans(const std::vector<LoggedPlan>& plans, int repeat,
                                    double actual_us);

// What SpeedupSummary says, and
//   share_of_ideal, share_of_bound   per contender "mean" over scenarios, and "by_class"
//   slower_than_serial               scenarios where concert is, by more than `tolerance`
//   oracle                           OracleSummary
//   prediction_error                 the median of the scenarios' own
nlohmann::json OverlapSummary(const nlohmann::json& scenarios, const Rivals& rivals,
                              double tolerance);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_C3_RESULT_H_
