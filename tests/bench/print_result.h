// What the suites that compare concert with others print for a reader.
#ifndef CONCERT_TESTS_BENCH_PRINT_RESULT_H_
#define CONCERT_TESTS_BENCH_PRINT_RESULT_H_

#include <iosfwd>

#include "nlohmann/json.hpp"

namespace concert::bench {

// What a reader must know before the first number, if there is something.
void PrintCaveats(const nlohmann::json& result, std::ostream& out);

// A row per scenario: the median of every form in `times_us`, and how many times as fast concert is
// as the best baseline; then the summary.
void PrintComparison(const nlohmann::json& result, std::ostream& out);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_PRINT_RESULT_H_
