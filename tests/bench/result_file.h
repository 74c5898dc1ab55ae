// Result files: one form for all suites, documented in docs/benchmarks/README.md.
#ifndef CONCERT_TESTS_BENCH_RESULT_FILE_H_
#define CONCERT_TESTS_BENCH_RESULT_FILE_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace concert::bench {

// {"schema": 1, "suite": suite, "header": {}, "scenarios": [], "summary": {}}
nlohmann::json NewResult(std::string_view suite);

// {"p50": ..., "p10": ..., "p90": ...}, to a nanosecond. Samples are microseconds.
nlohmann::json Spread(std::span<const double> samples_us);

// Says what a result file lacks or has wrong: INVALID_ARGUMENT naming the key.
absl::Status ValidateResult(const nlohmann::json& result);

// Validates, then replaces `path` in one step, so that no half-written file is ever seen.
absl::Status WriteResult(const nlohmann::json& result, const std::string& path);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RESULT_FILE_H_
