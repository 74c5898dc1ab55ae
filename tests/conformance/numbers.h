// Numbers of the ABI's dtypes as doubles and back, activations of them, and how far apart two
// results are.
#ifndef CONCERT_TESTS_CONFORMANCE_NUMBERS_H_
#define CONCERT_TESTS_CONFORMANCE_NUMBERS_H_

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "policies/seam/work.h"
#include "proto/ring/ring_abi.h"
#include "tests/support/e4m3.h"
#include "tests/support/seed.h"

namespace concert::daemon::conformance {

using policies::Dtype;
using Bytes = std::vector<uint8_t>;
using Values = std::vector<double>;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
Bytes EncodeAs(const std::vector<double>& values) {
  Bytes bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(static_cast<float>(values[i]));
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

template <typename T>
std::vector<double> DecodeAs(const Bytes& bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(static_cast<float>(value));
  }
  return values;
}

inline Bytes Encode(Dtype dtype, const std::vector<double>& values) {
  if (dtype == Dtype::kFp8E4m3) {
    Bytes bytes(values.size());
    std::transform(values.begin(), values.end(), bytes.begin(),
                   [](double value) { return test::EncodeE4m3(static_cast<float>(value)); });
    return bytes;
  }
  if (dtype == Dtype::kBf16) return EncodeAs<Eigen::bfloat16>(values);
  return dtype == Dtype::kFp16 ? EncodeAs<Eigen::half>(values) : EncodeAs<float>(values);
}

inline std::vector<double> Decode(Dtype dtype, const Bytes& bytes) {
  if (dtype == Dtype::kFp8E4m3) {
    std::vector<double> values(bytes.size());
    std::transform(bytes.begin(), bytes.end(), values.begin(), kernels::DecodeE4m3);
    return values;
  }
  if (dtype == Dtype::kBf16) return DecodeAs<Eigen::bfloat16>(bytes);
  return dtype == Dtype::kFp16 ? DecodeAs<Eigen::half>(bytes) : DecodeAs<float>(bytes);
}

// Values in [-1, 1] that the dtype represents exactly.
inline std::vector<double> RandomNumbers(Dtype dtype, size_t count, uint64_t seed) {
  std::mt19937_64 random(test::Seed() + seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(count);
  for (double& value : values) value = uniform(random);
  return Decode(dtype, Encode(dtype, values));
}

// || got - want || / || want ||, Frobenius; infinite when a number is not finite. `free`: how far a
// number may be off without being counted.
inline double RelativeError(const std::vector<double>& got, const std::vector<double>& want,
                            double free = 0) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double counted = std::fabs(got[i] - want[i]) - free;
    difference += counted <= 0 ? 0 : counted * counted;  // NaN is counted
    norm += want[i] * want[i];
  }
  const double error = std::sqrt(difference / norm);
  return std::isfinite(error) ? error : INFINITY;
}

// Of a GEMM by the dtype of A and W, against exact arithmetic on them as they are stored. fp8:
// tensor cores add its products in less than fp32.
inline double Tolerance(Dtype dtype) {
  if (dtype == Dtype::kFp8E4m3) return 5e-2;
  return dtype == Dtype::kFp32 ? 1e-5 : 1e-2;
}

// 0xff everywhere is NaN in every dtype: an element that a kernel forgot shows.
inline constexpr uint8_t kPoison = 0xff;

// concert_activation_abi in double precision.
inline double Activate(uint8_t activation, double x) {
  switch (activation) {
    case CONCERT_ABI_ACT_RELU:
      return std::fmax(x, 0);
    case CONCERT_ABI_ACT_GELU:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case CONCERT_ABI_ACT_SILU:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

}  // namespace concert::daemon::conformance

#endif  // CONCERT_TESTS_CONFORMANCE_NUMBERS_H_
