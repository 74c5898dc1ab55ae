// Numbers of the demo: bf16, here and in buffers that the daemon may use.
#ifndef CONCERT_EXAMPLES_BF16_H_
#define CONCERT_EXAMPLES_BF16_H_

#include <concert/concert.hpp>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace demo {

inline uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0x7fff + ((bits >> 16) & 1);  // round to nearest, ties to even
  return static_cast<uint16_t>(bits >> 16);
}

inline float FromBf16(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

// Uniform in [middle - reach, middle + reach).
inline std::vector<uint16_t> RandomBf16(uint64_t count, uint32_t seed, float middle = 0,
                                        float reach = 1) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> uniform(middle - reach, middle + reach);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = ToBf16(uniform(random));
  return values;
}

// An output that nobody has computed holds NaNs, which no check passes.
inline std::vector<uint16_t> Poison(uint64_t count) { return std::vector<uint16_t>(count, 0x7fc0); }

template <typename T>
concert::Buffer Upload(const concert::Session& session, uint32_t gpu,
                       const std::vector<T>& values) {
  concert::Buffer buffer = session.Allocate(values.size() * sizeof(T), gpu).value();
  buffer.Write(values.data(), buffer.bytes()).Check();
  return buffer;
}

inline std::vector<uint16_t> Download(const concert::Buffer& buffer) {
  std::vector<uint16_t> values(buffer.bytes() / sizeof(uint16_t));
  buffer.Read(values.data(), buffer.bytes()).Check();
  return values;
}

}  // namespace demo

#endif  // CONCERT_EXAMPLES_BF16_H_
