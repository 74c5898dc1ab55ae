// What is drawn from a row, but for the passes over it: the same on host and device, to the bit.
//
// Probabilities are integers, so that sums of them do not depend on the order in which they are
// added up and a row gives the same column on every device.
#ifndef CONCERT_KERNELS_SAMPLE_DRAW_H_
#define CONCERT_KERNELS_SAMPLE_DRAW_H_

#include <cmath>
#include <cstdint>

#include "kernels/float_order.h"
#include "kernels/sample/philox.h"
#include "kernels/sample/sample_args.h"

namespace concert::kernels {

// The largest of a row weighs about 2^kWeightBits, so that no row's weights reach 2^63.
inline constexpr int kWeightBits = 44;
inline constexpr uint32_t kMaxSampleColumns = 1 << 18;

// a * b / 2^64.
CONCERT_ON_BOTH_SIDES inline uint64_t MultiplyHigh(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  __extension__ using Product = unsigned __int128;
  return static_cast<uint64_t>((Product{a} * b) >> 64);
#endif
}

// Rounded by itself, never as a part of a fused operation.
CONCERT_ON_BOTH_SIDES inline float MultiplyRounded(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// How one row is drawn.
struct Draw {
  float temperature;
  uint32_t top_k;   // 0: no bound
  uint64_t top_p;   // in units of 2^-64; 0: no bound
  uint64_t random;  // uniform
};

CONCERT_ON_BOTH_SIDES inline uint64_t TopPOf(float top_p) {
  if (!(top_p > 0 && top_p < 1)) return 0;
  const auto share = static_cast<uint64_t>(top_p * 0x1p64f);
  return share > 0 ? share : 1;
}

// Reads what is the client's once. REQUIRES: row < args.rows.
CONCERT_ON_BOTH_SIDES inline Draw DrawOf(const SampleArgs& args, uint64_t row) {
  const auto float_at = [&](Address numbers, float otherwise) {
    return numbers == 0 ? otherwise : reinterpret_cast<const volatile float*>(numbers)[row];
  };
  int64_t top_k = args.top_k;
  if (args.top_ks != 0) top_k = LoadIndex(args.top_ks, row, IndexType::kInt32);
  uint64_t seed = args.seed, place = row, step = 0;
  if (args.seeds != 0) {
    seed = static_cast<uint64_t>(LoadIndex(args.seeds, row, IndexType::kInt64));
    place = 0;
  }
  if (args.steps != 0) step = static_cast<uint64_t>(LoadIndex(args.steps, row, args.step_type));
  const PhiloxWords random =
      Philox({{static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32),
               static_cast<uint32_t>(place), 0}},
             seed);
  return {float_at(args.temperatures, args.temperature),
          top_k <= 0 || top_k >= args.columns ? 0 : static_cast<uint32_t>(top_k),
          TopPOf(float_at(args.top_ps, args.top_p)),
          random.words[0] | static_cast<uint64_t>(random.words[1]) << 32};
}

// Whether a row is drawn at all; else it gives its largest. `largest`: OrderOf its largest.
CONCERT_ON_BOTH_SIDES inline bool IsDrawn(const Draw& draw, uint32_t largest) {
  const float infinity = FloatOf(0x7f800000u);
  return draw.temperature > 1e-6f && largest < OrderOf(infinity) && largest > OrderOf(-infinity);
}

// What each logit of a row weighs: exp((x - largest) / temperature) in units of 2^-kWeightBits.
class Weights {
 public:
  // REQUIRES: IsDrawn.
  CONCERT_ON_BOTH_SIDES Weights(const Draw& draw, uint32_t largest)
      : largest_(ValueOfOrder(largest)), sharpness_(kLog2E * kUnit / draw.temperature) {}

  CONCERT_ON_BOTH_SIDES uint64_t operator()(float x) const {
    // How far below the largest, in powers of 2. Also neither NaN nor, if x is not what it was when
    // the largest was found, below 0.
    const float distance = MultiplyRounded(largest_ - x, sharpness_);
    if (!(distance >= 0 && distance < static_cast<float>(kWeightBits * kUnit))) return 0;
    const auto fixed = static_cast<uint32_t>(distance);
    const uint32_t whole = fixed / kUnit, part = fixed % kUnit;
    return static_cast<uint64_t>(PowerOf(part)) << (kWeightBits - 24) >> whole;
  }

 private:
  static constexpr uint32_t kUnit = 1 << 24;  // of distances: an octave
  static constexpr float kLog2E = 1.44269504f;

  // 2^(24 - part / kUnit), by the series of 2^y, whose remainder is less than 2e-7 of it where y is
  // at most 1/2.
  CONCERT_ON_BOTH_SIDES static uint32_t PowerOf(uint32_t part) {
    constexpr float kMiddle = 0.70710678f * kUnit;                                       // at y = 0
    const float y = (static_cast<float>(kUnit / 2) - static_cast<float>(part)) / kUnit;  // exact
    float power = 1.5403530e-4f;  // ln(2)^6 / 6!
    power = fmaf(power, y, 1.3333558e-3f);
    power = fmaf(power, y, 9.6181291e-3f);
    power = fmaf(power, y, 5.5504109e-2f);
    power = fmaf(power, y, 2.4022651e-1f);
    power = fmaf(power, y, 6.9314718e-1f);
    power = fmaf(power, y, 1.0f);
    return static_cast<uint32_t>(MultiplyRounded(power, kMiddle));
  }

  float largest_, sharpness_;
};

// What the weights of those that may be drawn must reach, of `total` in all. At least 1.
CONCERT_ON_BOTH_SIDES inline uint64_t TopPTarget(const Draw& draw, uint64_t total) {
  const uint64_t target = MultiplyHigh(total, draw.top_p);
  return target > 0 ? target : 1;
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_SAMPLE_DRAW_H_
