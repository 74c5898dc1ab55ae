// The model of decode.h in fp32 on this CPU, to check it by.
#ifndef CONCERT_EXAMPLES_DECODE_REFERENCE_H_
#define CONCERT_EXAMPLES_DECODE_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "decode.h"

namespace demo {

// The logits behind the last of a sequence's tokens. All tokens are computed at once, as a prefill
// does, so nothing here knows of caches, pages and programs. REQUIRES: there is a token.
std::vector<float> ReferenceLogits(const Weights& weights, const std::vector<int32_t>& tokens);

// |actual - expected| / |expected|, as vectors; NaN if any number is. `actual` is bf16.
double RelativeError(const uint16_t* actual, const std::vector<float>& expected);

// Rounding to bf16 between the ops makes 0.005 to 0.011 (840 contexts of up to 36 tokens). Another
// token anywhere in such a context makes 0.045 and more.
inline constexpr double kLogitsTolerance = 0.02;

}  // namespace demo

#endif  // CONCERT_EXAMPLES_DECODE_REFERENCE_H_
