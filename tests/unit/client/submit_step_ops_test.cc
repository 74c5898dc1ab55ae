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

}  // namespace
}  // namespace concert
