// Whether a run of a model's step left what the reference's left.
#ifndef CONCERT_TESTS_GPU_MODEL_CHECK_H_
#define CONCERT_TESTS_GPU_MODEL_CHECK_H_

#include <cstdint>
#include <vector>

#include "tests/gpu/model_step.h"

namespace concert::test {

// A block and the state, as they were left.
struct Left {
  std::vector<uint8_t> block, state;
};

// Hidden states and appended keys and values, compared as numbers; all else, guards included, must
// be what it was before. `before`: the state. Failures say what differs.
void ExpectRight(const ModelStep& model, const StepInputs& inputs,
                 const std::vector<uint8_t>& before, const Left& left, const Left& reference);

// The same of a block alone.
void ExpectRightBlock(const ModelStep& model, const StepInputs& inputs,
                      const std::vector<uint8_t>& block, const std::vector<uint8_t>& reference);
// The same of the state alone, after runs that appended to `slots`.
void ExpectRightState(const ModelStep& model, const std::vector<int64_t>& slots,
                      const std::vector<uint8_t>& before, std::vector<uint8_t> left,
                      const std::vector<uint8_t>& reference);

// That nothing but out of the block, and of the state nothing but what is in the caches differs.
void ExpectGuarded(const ModelStep& model, const StepInputs& inputs,
                   const std::vector<uint8_t>& before, const Left& left);

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_MODEL_CHECK_H_
