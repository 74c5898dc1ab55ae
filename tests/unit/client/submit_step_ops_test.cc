// What descriptors of the kinds from advance on hold.
#include <gtest/gtest.h>

#include "tests/unit/client/submit_fixture.h"

namespace concert {
namespace {

using SubmitStepOpsTest = SubmitTest;

TEST_F(SubmitStepOpsTest, EveryFieldOfAnAdvanceTravels) {
  const Ticket ticket = queue_.Advance({.rows = 3,
                                        .counter_max = 70,
                                        .counters = {x_, 64},
                                        .slots = {y_, 16},
                                        .counter_dtype = kInt64,
                                        .slot_dtype = kInt32});
  EXPECT_TRUE(ticket.submit_status().ok());
  const concert_advance_body& body = daemon_.descriptor(0).body.advance;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_ADVANCE);
  EXPECT_EQ(body.rows, 3u);
  EXPECT_EQ(body.counter_max, 70u);
  EXPECT_EQ(body.counters.offset, 64u);
  EXPECT_EQ(body.slots.offset, 16u);
  EXPECT_NE(body.counters.buffer, body.slots.buffer);
  EXPECT_EQ(body.counter_dtype, CONCERT_ABI_INT64);
  EXPECT_EQ(body.slot_dtype, CONCERT_ABI_INT32);
}

TEST_F(SubmitStepOpsTest, EveryFieldOfAQuantizeTravels) {
  const Ticket ticket = queue_.Quantize({.rows = 3,
                                         .columns = 40,
                                         .x = {x_, 64},
                                         .out = {y_, 16},
                                         .scales = {y_, 256},
                                         .x_stride = 48,
                                         .dtype = kFp16});
  EXPECT_TRUE(ticket.submit_status().ok());
  const concert_quantize_body& body = daemon_.descriptor(0).body.quantize;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_QUANTIZE);
  EXPECT_EQ(body.rows, 3u);
  EXPECT_EQ(body.columns, 40u);
  EXPECT_EQ(body.x.offset, 64u);
  EXPECT_EQ(body.out.offset, 16u);
  EXPECT_EQ(body.scales.offset, 256u);
  EXPECT_NE(body.x.buffer, body.out.buffer);
  EXPECT_EQ(body.out.buffer, body.scales.buffer);
  EXPECT_EQ(body.x_stride, 48u);
  EXPECT_EQ(body.out_stride, 40u);
  EXPECT_EQ(body.dtype, CONCERT_ABI_FP16);
}

}  // namespace
}  // namespace concert
