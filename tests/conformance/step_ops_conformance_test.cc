// The kinds from advance on, of every backend, against what their definitions say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/conformance/indices.h"
#include "tests/conformance/row_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

class StepOpsConformanceTest : public DeviceTest {
 protected:
  void RunKind(concert_descriptor& descriptor, uint16_t kind) {
    descriptor.kind = kind;
    Run(Admit(descriptor));
  }
};

class AdvanceConformanceTest : public StepOpsConformanceTest {
 protected:
  static constexpr uint32_t kMax = 1000;

  // What becomes of `counters`, of which a last one belongs to nobody.
  Indices RunOn(const Indices& counters, const Indices& slots, uint8_t counter_dtype,
                uint8_t slot_dtype) {
    Bytes bytes = EncodeIndices(counter_dtype, counters);
    bytes.resize(bytes.size() + IndexBytes(counter_dtype), kPoison);
    concert_descriptor descriptor{};
    concert_advance_body& body = descriptor.body.advance;
    body.rows = static_cast<uint32_t>(counters.size()), body.counter_max = kMax;
    body.counter_dtype = counter_dtype, body.slot_dtype = slot_dtype;
    body.counters.buffer = NewBuffer(bytes);
    if (!slots.empty()) body.slots.buffer = NewBuffer(EncodeIndices(slot_dtype, slots));
    RunKind(descriptor, CONCERT_OP_ADVANCE);
    Indices after = DecodeIndices(counter_dtype, Read(body.counters.buffer, bytes.size()));
    EXPECT_EQ(after.back(), -1) << "what lies behind was written";
    after.pop_back();
    return after;
  }
};

TEST_P(AdvanceConformanceTest, CountsUpToTheBoundAndLeavesPadding) {
  const Indices counters = {0, 7, kMax - 1, kMax, kMax + 1, 5, kHighest, -1, kLowest, 3};
  const Indices slots = {0, 1, 2, 3, 4, -1, kHighest, 0, 0, kLowest};
  const Indices all = {1, 8, kMax, kMax, kMax, 6, kMax, 1, 1, 4};
  const Indices with_slots = {1, 8, kMax, kMax, kMax, 5, kMax, 1, 1, 3};
  for (const uint8_t counter_dtype : kIndexDtypes) {
    for (const uint8_t slot_dtype : kIndexDtypes) {
      EXPECT_EQ(RunOn(counters, {}, counter_dtype, slot_dtype), all);
      EXPECT_EQ(RunOn(counters, slots, counter_dtype, slot_dtype), with_slots);
    }
  }
}

// More than threads of a block, and than threads of all blocks.
TEST_P(AdvanceConformanceTest, TakesAnyNumberOfRows) {
  for (const uint32_t rows : {1u, 257u, 300000u}) {
    Indices counters(rows), want(rows);
    for (uint32_t i = 0; i < rows; ++i) {
      counters[i] = i % (kMax + 3);
      want[i] = std::min<int64_t>(counters[i] + 1, kMax);
    }
    EXPECT_EQ(RunOn(counters, {}, CONCERT_ABI_INT64, 0), want);
  }
}

class QuantizeConformanceTest : public StepOpsConformanceTest {
 protected:
  // Rows of x as quantised by the definition, with `values` between them left out: to the bit.
  void RunCase(const Rows& shape, Dtype dtype, const Values& x) {
    SCOPED_TRACE(testing::Message() << shape.name << ", dtype " << static_cast<int>(dtype));
    const uint64_t stride = shape.columns + shape.padding;
    concert_descriptor descriptor{};
    concert_quantize_body& body = descriptor.body.quantize;
    body.rows = shape.rows, body.columns = shape.columns;
    body.x_stride = body.out_stride = stride;
    body.dtype = static_cast<uint8_t>(dtype);
    body.x.buffer = NewBuffer(Encode(dtype, x));
    body.out.buffer = NewPoisoned(shape.rows * stride);
    body.scales.buffer = NewPoisoned((shape.rows + 1) * sizeof(float));
    RunKind(descriptor, CONCERT_OP_QUANTIZE);
    const Bytes out = Read(body.out.buffer, shape.rows * stride);
    const Bytes scales = Read(body.scales.buffer, (shape.rows + 1) * sizeof(float));
    for (uint64_t row = 0; row < shape.rows; ++row) {
      const Values values(x.begin() + static_cast<int64_t>(row * stride),
                          x.begin() + static_cast<int64_t>(row * stride + shape.columns));
      const float want = WantedScale(values);
      float scale;
      std::memcpy(&scale, &scales[row * sizeof(float)], sizeof(float));
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(scale)) << "row " << row;
      } else {
        ASSERT_EQ(scale, want) << "row " << row;
      }
      for (uint64_t i = 0; i < stride; ++i) {
        const int code = i >= shape.columns ? kPoison
                         : std::isnan(want)
                             ? 0x7f
                             : test::EncodeE4m3(static_cast<float>(values[i]) / want);
        ASSERT_EQ(int{out[row * stride + i]}, code) << "row " << row << ", column " << i;
      }
    }
    EXPECT_TRUE(std::all_of(scales.end() - sizeof(float), scales.end(), [](uint8_t byte) {
      return byte == kPoison;
    })) << "what lies behind was written";
  }

 private:
  static float WantedScale(const Values& values) {
    float largest = 0;
    for (const double value : values) {
      if (!std::isfinite(value)) return std::nanf("");
      largest = std::max(largest, std::fabs(static_cast<float>(value)));
    }
    return std::max(largest / 448, std::numeric_limits<float>::min());
  }
};

TEST_P(QuantizeConformanceTest, RoundsRowsByTheirLargest) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    for (const Rows& shape : kRowShapes) {
      Values x = RandomNumbers(dtype, shape.rows * (shape.columns + shape.padding), 1);
      // Magnitudes over all that e4m3 has, and more.
      for (size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], -static_cast<int>(i % 21));
      RunCase(shape, dtype, Rounded(dtype, x));
    }
  }
}

TEST_P(QuantizeConformanceTest, ZerosTinyAndInfiniteNumbers) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    const Values x = {
        0,    -0.0,  0,      0,     0,      0,      0,     0,       //
        1,    kNan,  -1,     0,     2,      3,      4,     5,       //
        1,    2,     kInf,   -kInf, 0,      1,      2,     3,       //
        1e-4, -3e-5, 6e-8,   0,     -1e-40, 1e-44,  7e-45, -6e-8,   //
        0,    1e-42, -7e-45, 3e-43, 0,      -0.0,   2e-41, -1e-42,  //
        6e4,  -6e4,  448,    -448,  1,      0.0078, -3e-3, 30,      //
    };
    RunCase({.name = "special", .rows = 6, .columns = 8}, dtype, Rounded(dtype, x));
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(AdvanceConformanceTest);
CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(QuantizeConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
