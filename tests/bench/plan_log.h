// What the daemon decided, and which programs it has, as its operator sees it (`concertctl plans`,
// `concertctl programs`).
#ifndef CONCERT_TESTS_BENCH_PLAN_LOG_H_
#define CONCERT_TESTS_BENCH_PLAN_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace concert::bench {

struct LoggedPlan {
  std::string text;  // one sentence
  std::string form;
  uint32_t ops = 0, launches = 0;
  double predicted_us = 0, actual_us = 0;
  uint64_t finished_at_ns = 0;
  std::string kind;  // of its first op
  uint32_t gpu = 0;
};

// Plans among the last 256 that ended, newest first; only those that ended after `after_ns`.
absl::StatusOr<std::vector<LoggedPlan>> AllLastPlans(const std::string& admin_socket,
                                                     uint64_t after_ns = 0);
// Those of them that are of ops of a kind.
absl::StatusOr<std::vector<LoggedPlan>> LastPlans(const std::string& admin_socket,
                                                  uint64_t after_ns = 0,
                                                  const std::string& kind = "gemm");

// Memory of a program's own.
struct RegisteredProgram {
  uint64_t arena_bytes = 0, slot_bytes = 0;  // and what the arena were if no two slots shared it
  uint64_t workspace_bytes = 0;
};

// Of all sessions.
absl::StatusOr<std::vector<RegisteredProgram>> RegisteredPrograms(const std::string& admin_socket);

// What plans of batches of `gemms` ops (runs of programs) each say: "plans", how many there were of
// each kind (form, ops, launches), the most frequent first; "plan", the newest one of the most
// frequent kind; "predicted_us" and "planned_us", medians of what plans were predicted to take and
// took, per batch; "prediction_error", the median of |predicted / actual - 1|. Empty for no plans.
// Plans that were seen to end at once count as one: the daemon gives the first of them all the
// time. Plans of one GPU, newest first.
nlohmann::json DescribePlans(const std::vector<LoggedPlan>& plans, int gemms);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_PLAN_LOG_H_
