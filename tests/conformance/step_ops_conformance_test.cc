// The kinds from advance on, of every backend, against what their definitions say.
#include <gtest/gtest.h>

#include "tests/conformance/device_fixture.h"
#include "tests/conformance/indices.h"

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

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(AdvanceConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
