// Result files: one form for all suites, documented in docs/benchmarks/README.md.
#ifndef CONCERT_TESTS_BENCH_RESULT_FILE_H_
#define CONCERT_TESTS_BENCH_RESULT_FILE_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace concert::bench {

// What is published has at least so many turns of everybody; less is a quick look.
constexpr int kRoundsToPublish = 20;

// {"schema": 1, "suite": suite, "header": {}, "scenarios": [], "summary": {}}
nlohmann::json NewResult(std::string_view suite);

// {"p50": ..., "p10": ..., "p90": ...}, to a nanosecond. Samples are microseconds.
nlohmann::json Spread(std::span<const double> samples_us);

// Says what a result file lacks or has wrong: INVALID_ARGUMENT naming the key.
absl::Status ValidateResult(const nlohmann::json& result);

// Whether `result`, which ValidateResult finds right, has fewer rounds than kRoundsToPublish. Files
// of suite "tenants" that do not say how many laps a mode had are from when it had one to eight.
bool IsQuickLook(const nlohmann::json& result);

// What a reader must know before the first number: that a result is modelled, that it is a quick
// look. Empty: nothing.
std::string Caveats(const nlohmann::json& result);

// As result files have it: one scenario a line. Any other layout is read just as well.
std::string DumpResult(const nlohmann::json& result);

// A result file that ValidateResult finds right. NOT_FOUND, or INVALID_ARGUMENT naming file and
// key.
absl::StatusOr<nlohmann::json> ReadResult(const std::string& path);

// Whether WriteResult can: what has been measured for an hour must not be lost for want of a
// folder. PERMISSION_DENIED says why not. A file that is there stays as it is.
absl::Status CheckWritable(const std::string& path);

// Validates, then replaces `path` in one step, so that no half-written file is ever seen.
absl::Status WriteResult(const nlohmann::json& result, const std::string& path);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RESULT_FILE_H_
