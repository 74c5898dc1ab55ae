// sample of every backend: against softmax in fp64 where rounding cannot matter, and how often
// columns are drawn for many rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>

#include "kernels/sample/philox.h"
#include "tests/conformance/indices.h"
#include "tests/conformance/row_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

constexpr uint64_t kSeed = 0x123456789abcdef0;  // fixed: frequencies are the same in every run

// How all rows are drawn.
struct Sampler {
  float temperature = 1;
  uint32_t top_k = 0;
  float top_p = 1;
};

// What each column of a row has in fp64; empty where rounding may decide which are drawn.
Values Probabilities(const Sampler& sampler, const Values& logits) {
  std::vector<size_t> places(logits.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double largest = logits[places[0]];
  Values weights(logits.size(), 0);
  const auto weight = [&](size_t rank) {
    return std::exp((logits[places[rank]] - largest) / static_cast<double>(sampler.temperature));
  };
  const auto equals = [&](size_t a, size_t b) { return logits[places[a]] == logits[places[b]]; };
  size_t count =
      sampler.top_k == 0 ? logits.size() : std::min<size_t>(sampler.top_k, logits.size());
  while (count < logits.size() && equals(count, count - 1)) ++count;
  double all = 0, reached = 0;
  for (size_t rank = 0; rank < count; ++rank) all += weight(rank);
  if (sampler.top_p > 0 && sampler.top_p < 1) {
    size_t rank = 0;
    while (reached < static_cast<double>(sampler.top_p) * all) {
      do reached += weight(rank++);
      while (rank < count && equals(rank, rank - 1));
      if (std::fabs(reached / all - static_cast<double>(sampler.top_p)) < 1e-5) return {};
    }
    count = rank;
    all = reached;
  }
  for (size_t rank = 0; rank < count; ++rank) weights[places[rank]] = weight(rank) / all;
  return weights;
}

class SampleConformanceTest : public DeviceTest {
 protected:
  // A descriptor of `rows` rows of logits as they lie in memory, `columns` + `padding` each.
  concert_descriptor Make(uint32_t rows, uint32_t columns, uint32_t padding, Dtype dtype,
                          const Values& x, const Sampler& sampler) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_SAMPLE;
    concert_sample_body& body = descriptor.body.sample;
    body.rows = rows, body.columns = columns, body.x_stride = columns + padding;
    body.dtype = static_cast<uint8_t>(dtype), body.index_dtype = CONCERT_ABI_INT32;
    body.x.buffer = NewBuffer(Encode(dtype, x));
    body.temperature = sampler.temperature;
    body.top_k = sampler.top_k, body.top_p = sampler.top_p;
    body.seed = kSeed;
    return descriptor;
  }
  Indices RunOn(concert_descriptor& descriptor) {
    concert_sample_body& body = descriptor.body.sample;
    const uint64_t bytes = (body.rows + 1) * IndexBytes(body.index_dtype);
    body.indices.buffer = NewPoisoned(bytes);
    Run(Admit(descriptor));
    Indices drawn = DecodeIndices(body.index_dtype, Read(body.indices.buffer, bytes));
    EXPECT_EQ(drawn.back(), -1) << "what lies behind was written";
    drawn.pop_back();
    for (const int64_t column : drawn) EXPECT_TRUE(column >= 0 && column < body.columns) << column;
    return drawn;
  }
  template <typename T>
  uint32_t NewNumbers(const std::vector<T>& numbers) {
    Bytes bytes(numbers.size() * sizeof(T));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return NewBuffer(bytes);
  }

  // Pearson's test of what many rows of the same logits give.
  void ExpectFrequencies(const Sampler& sampler, const Values& logits, Dtype dtype) {
    SCOPED_TRACE(testing::Message()
                 << "temperature " << sampler.temperature << ", top_k " << sampler.top_k
                 << ", top_p " << sampler.top_p << ", dtype " << static_cast<int>(dtype));
    constexpr uint32_t kRows = 20000;
    const auto columns = static_cast<uint32_t>(logits.size());
    Values x;
    for (uint32_t row = 0; row < kRows; ++row) x.insert(x.end(), logits.begin(), logits.end());
    concert_descriptor descriptor = Make(kRows, columns, 0, dtype, x, sampler);
    Values counts(columns, 0);
    for (const int64_t column : RunOn(descriptor)) ++counts[static_cast<size_t>(column)];
    const Values wanted = Probabilities(sampler, Rounded(dtype, logits));
    ASSERT_FALSE(wanted.empty());
    double statistic = 0, degrees = -1;
    double rare_count = 0, rare_wanted = 0;  // cells too small for the test, as one
    const auto add = [&](double count, double want) {
      statistic += (count - want) * (count - want) / want;
      ++degrees;
    };
    for (uint32_t i = 0; i < columns; ++i) {
      const double want = wanted[i] * kRows;
      if (want == 0) {
        EXPECT_EQ(counts[i], 0) << "column " << i << " may not be drawn";
      } else if (want < 10) {
        rare_count += counts[i], rare_wanted += want;
      } else {
        add(counts[i], want);
      }
    }
    if (rare_wanted >= 1) add(rare_count, rare_wanted);
    EXPECT_LT(statistic, degrees + 4 * std::sqrt(2 * degrees) + 4) << degrees << " degrees";
  }

  // The column that `random` of 2^64 falls to; none if rounding may move it to a neighbour.
  static std::optional<int64_t> ColumnOf(const Values& probabilities, uint64_t random) {
    constexpr double kMargin = 3e-6;
    const double place = std::ldexp(static_cast<double>(random), -64);
    double below = 0;
    for (size_t i = 0; i < probabilities.size(); ++i) {
      if (place < below + probabilities[i]) {
        const bool sure = place > below + kMargin && place < below + probabilities[i] - kMargin;
        return sure ? std::optional<int64_t>(static_cast<int64_t>(i)) : std::nullopt;
      }
      below += probabilities[i];
    }
    return std::nullopt;
  }
};

constexpr std::array kDtypes = {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32};

TEST_P(SampleConformanceTest, FrequenciesAreTheProbabilities) {
  // Equals among them, negative ones, one that is never drawn, and more columns than a pack.
  Values logits;
  for (int i = 0; i < 36; ++i) logits.push_back(std::sin(3.0 * i) * 2 - 1);
  logits.insert(logits.end(), {1, 1, -0.5, -kInf});
  for (const Dtype dtype : kDtypes) {
    for (const Sampler& sampler :
         {Sampler{}, Sampler{.temperature = 0.5f}, Sampler{.temperature = 3},
          Sampler{.temperature = std::numeric_limits<float>::infinity(), .top_k = 39},
          Sampler{.top_k = 1}, Sampler{.top_k = 7}, Sampler{.top_k = 1000}, Sampler{.top_p = 0.3f},
          Sampler{.top_p = 0.83f}, Sampler{.top_p = 1e-9f},
          Sampler{.temperature = 1.5f, .top_k = 12, .top_p = 0.77f}}) {
      ExpectFrequencies(sampler, logits, dtype);
    }
  }
}

TEST_P(SampleConformanceTest, EqualsOfTheLeastMayBeDrawnToo) {
  ExpectFrequencies({.top_k = 1}, {3, 1, 3, 2, 3}, Dtype::kBf16);
  ExpectFrequencies({.top_k = 2, .top_p = 0.1f}, {3, 1, 3, 2, -3}, Dtype::kFp16);
  ExpectFrequencies({.top_k = 3}, {0.0, -0.0, -1, 0.0, 0.0}, Dtype::kFp32);
}

// Vocabularies, of which all threads have many elements, against softmax in fp64.
TEST_P(SampleConformanceTest, DrawsFromVocabularies) {
  constexpr uint32_t kRows = 3;
  struct Shape {
    uint32_t columns, padding;
    std::vector<Dtype> dtypes;
  };
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> normal(0, 3);
  int sure = 0, all = 0;
  const std::vector<Dtype> every(kDtypes.begin(), kDtypes.end());
  for (const auto& [columns, padding, dtypes] : {Shape{1, 0, every},
                                                 {257, 0, every},
                                                 {32000, 3, every},
                                                 {128256, 0, {Dtype::kBf16}},
                                                 {262144, 0, {Dtype::kFp32}}}) {
    for (const Dtype dtype : dtypes) {
      for (const Sampler& sampler :
           {Sampler{}, Sampler{.temperature = 0.6f, .top_k = 50},
            Sampler{.temperature = 0.8f, .top_p = 0.9f}, Sampler{.top_k = 5000, .top_p = 0.7f}}) {
        SCOPED_TRACE(testing::Message()
                     << columns << " columns, dtype " << static_cast<int>(dtype) << ", top_k "
                     << sampler.top_k << ", top_p " << sampler.top_p);
        const uint64_t stride = columns + padding;
        Values x(kRows * stride);
        for (double& logit : x) logit = normal(random);
        for (uint64_t i = 0; i < x.size(); ++i) {
          if (i % stride >= columns) x[i] = 1000;
        }
        x = Rounded(dtype, x);
        concert_descriptor descriptor = Make(kRows, columns, padding, dtype, x, sampler);
        const Indices drawn = RunOn(descriptor);
        for (uint32_t row = 0; row < kRows; ++row, ++all) {
          const auto begin = x.begin() + static_cast<int64_t>(row * stride);
          const Values logits(begin, begin + columns);
          const kernels::PhiloxWords words = kernels::Philox({{0, 0, row, 0}}, kSeed);
          const uint64_t place = words.words[0] | uint64_t{words.words[1]} << 32;
          const std::optional<int64_t> want = ColumnOf(Probabilities(sampler, logits), place);
          if (!want) continue;
          ++sure;
          EXPECT_EQ(drawn[row], *want) << "row " << row;
        }
      }
    }
  }
  EXPECT_GT(sure, all / 2);
}

TEST_P(SampleConformanceTest, WithoutATemperatureItIsAnArgmax) {
  for (const Dtype dtype : kDtypes) {
    for (const float temperature : {0.0f, -1.0f, 1e-7f, std::nanf("")}) {
      const Values x = {1,  3,  -2, 3,  0,  2,  3,  1,  //
                        -5, -4, -4, -9, -4, -8, -7, -6};
      concert_descriptor descriptor = Make(2, 8, 0, dtype, x, {.temperature = temperature});
      EXPECT_EQ(RunOn(descriptor), (Indices{1, 1}));
    }
    const Values x = {1,     kInf,  kNan,  2,     kInf,  -1,    3,     4,  //
                      1,     2,     kInf,  kInf,  5,     6,     7,     8,  //
                      -kInf, -kInf, -kInf, -kInf, -kInf, -kInf, -kInf, -kInf};
    concert_descriptor descriptor = Make(3, 8, 0, dtype, x, {.top_k = 3, .top_p = 0.9f});
    EXPECT_EQ(RunOn(descriptor), (Indices{2, 2, 0}));
  }
}

TEST_P(SampleConformanceTest, TheSameSeedRowAndStepDrawTheSame) {
  constexpr uint32_t kRows = 200, kColumns = 1000;
  const Values x = RandomNumbers(Dtype::kBf16, kRows * kColumns, 1);
  concert_descriptor descriptor = Make(kRows, kColumns, 0, Dtype::kBf16, x, {});
  const auto differing = [](const Indices& a, const Indices& b) {
    int count = 0;
    for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
    return count;
  };
  const Indices first = RunOn(descriptor);
  EXPECT_EQ(RunOn(descriptor), first);
  descriptor.body.sample.index_dtype = CONCERT_ABI_INT64;
  EXPECT_EQ(RunOn(descriptor), first);
  for (const uint8_t step_dtype : kIndexDtypes) {
    descriptor.body.sample.step_dtype = step_dtype;
    descriptor.body.sample.steps.buffer = NewBuffer(EncodeIndices(step_dtype, Indices(kRows, 0)));
    EXPECT_EQ(RunOn(descriptor), first);
    descriptor.body.sample.steps.buffer = NewBuffer(EncodeIndices(step_dtype, Indices(kRows, 1)));
    EXPECT_GT(differing(RunOn(descriptor), first), 180);
  }
  descriptor.body.sample.steps = {};
  descriptor.body.sample.seed = kSeed + 1;
  EXPECT_GT(differing(RunOn(descriptor), first), 180);
}

// A row that has all its parameters for itself draws what it draws alone, from a descriptor that
// says the same.
TEST_P(SampleConformanceTest, RowsMayHaveParametersOfTheirOwn) {
  constexpr uint32_t kRows = 24, kColumns = 333;
  const Values x = RandomNumbers(Dtype::kFp32, kRows * kColumns, 1);
  std::vector<float> temperatures, top_ps;
  std::vector<int32_t> top_ks;
  std::vector<int64_t> seeds;
  Indices steps;
  for (uint32_t row = 0; row < kRows; ++row) {
    temperatures.push_back(row % 5 == 0 ? 0 : 0.25f * static_cast<float>(row % 5));
    top_ks.push_back(row % 4 == 0 ? -7 : static_cast<int32_t>(row * 20));
    top_ps.push_back(row % 3 == 0 ? std::nanf("") : 0.3f * static_cast<float>(row % 3));
    seeds.push_back(row % 2 == 0 ? -1 - int64_t{row} : int64_t{row} << 40);
    steps.push_back(row % 6 == 0 ? kLowest : int64_t{row} << 33);
  }
  concert_descriptor descriptor = Make(kRows, kColumns, 0, Dtype::kFp32, x, {});
  concert_sample_body& body = descriptor.body.sample;
  body.temperatures.buffer = NewNumbers(temperatures);
  body.top_ks.buffer = NewNumbers(top_ks);
  body.top_ps.buffer = NewNumbers(top_ps);
  body.seeds.buffer = NewNumbers(seeds);
  body.steps.buffer = NewNumbers(steps);
  body.step_dtype = CONCERT_ABI_INT64;
  const Indices together = RunOn(descriptor);
  for (uint32_t row = 0; row < kRows; ++row) {
    concert_descriptor one = descriptor;
    one.body.sample.rows = 1;
    one.body.sample.x.offset = uint64_t{row} * kColumns * sizeof(float);
    one.body.sample.temperature = temperatures[row];
    one.body.sample.top_k = static_cast<uint32_t>(std::max(top_ks[row], 0));
    one.body.sample.top_p = top_ps[row];
    one.body.sample.seed = static_cast<uint64_t>(seeds[row]);
    one.body.sample.steps.offset = row * sizeof(int64_t);
    one.body.sample.temperatures = one.body.sample.top_ks = one.body.sample.top_ps = {};
    one.body.sample.seeds = {};
    EXPECT_EQ(RunOn(one)[0], together[row]) << "row " << row;
  }
}

CONCERT_INSTANTIATE_FOR_EACH_DEVICE(SampleConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
