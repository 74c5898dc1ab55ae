// What a decode step should give, computed on the CPU.
#ifndef CONCERT_TESTS_BENCH_STEP_REFERENCE_H_
#define CONCERT_TESTS_BENCH_STEP_REFERENCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "tests/bench/step_data.h"

namespace concert::bench {

// The last hidden state behind its norm, or the logits if there is a vocabulary, [row][column]: in
// fp32 throughout, of the same bf16 weights, keys and values. Uses all cores; 0.6 G parameters take
// a second on sixteen.
std::vector<float> ReferenceStep(const StepData& data);

// Of bf16 results: the relative Frobenius error, NaN if an element is.
double StepError(std::span<const float> reference, std::span<const uint16_t> results);

// The largest error of a right result. A layer rounds some eight values on the way to the residual,
// each by at most 2^-9 of itself, and the step's ends as many as two layers; errors of so many
// independent roundings add as their squares. Right results have half of it: 12 layers 0.9 %.
double StepTolerance(const StepModel& model);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_STEP_REFERENCE_H_
