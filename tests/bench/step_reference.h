// What a step should give, computed on the CPU.
#ifndef CONCERT_TESTS_BENCH_STEP_REFERENCE_H_
#define CONCERT_TESTS_BENCH_STEP_REFERENCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "tests/bench/step_data.h"

namespace concert::bench {

// The rows of a step that are computed again, ascending: all, unless they are too many. Then of
// each sequence as many of the chunk's first tokens as of others, which are spread evenly and end
// with the last.
std::vector<uint32_t> CheckedRows(const StepData& data);
bool ChecksAllRows(const StepData& data);

struct ExpectedStep {
  std::vector<uint32_t> rows;  // of StepData::results(): those that have been computed
  std::vector<float> values;   // [of rows][column]
  // Of the keys and values that the step has written for checked rows: the relative Frobenius
  // error. 0 where all rows are checked, since they show in the results.
  double cache_error = 0;
};

// The last hidden state behind its norm, or the logits if there is a vocabulary: in fp32
// throughout, of the same bf16 weights, keys and values. Uses all cores; 0.6 G parameters take a
// second on sixteen. Where not all rows are checked, those before a checked one have the keys and
// values that a step has left in `cache` [layer]: first rows depend on checked ones alone, and are
// checked whatever `cache` holds; the others are right if the keys and values of those before them
// are, which cache_error samples.
ExpectedStep ReferenceStep(const StepData& data, std::span<const LayerCache> cache = {});

// Of bf16 results: the relative Frobenius error of the expected rows, or cache_error if that is
// larger; NaN if any element of any row is not finite.
double StepError(const ExpectedStep& expected, StepExtent extent,
                 std::span<const uint16_t> results);

// The largest error of a right result. A layer rounds some eight values on the way to the residual,
// each by at most 2^-9 of itself, and the step's ends as many as two layers; errors of so many
// independent roundings add as their squares. Right results have half of it: 12 layers 0.9 %.
double StepTolerance(const StepModel& model);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_STEP_REFERENCE_H_
