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

TEST_F(SubmitStepOpsTest, EveryFieldOfASampleTravels) {
  SampleOp op = {.rows = 3, .columns = 40, .x = {x_, 16}, .indices = {y_, 32}};
  op.temperature = 0.5f, op.top_p = 0.25f, op.top_k = 7, op.seed = uint64_t{9} << 40;
  op.steps = {x_, 48}, op.temperatures = {x_, 64}, op.top_ks = {x_, 80};
  op.top_ps = {x_, 96}, op.seeds = {x_, 112};
  op.x_stride = 48, op.dtype = kFp16, op.index_dtype = kInt64;
  EXPECT_TRUE(queue_.Sample(op).submit_status().ok());
  const concert_sample_body& body = daemon_.descriptor(0).body.sample;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_SAMPLE);
  EXPECT_EQ(body.rows, 3u);
  EXPECT_EQ(body.columns, 40u);
  uint64_t offset = 0;
  for (const concert_operand& operand : {body.x, body.indices, body.steps, body.temperatures,
                                         body.top_ks, body.top_ps, body.seeds}) {
    EXPECT_EQ(operand.offset, offset += 16);
  }
  EXPECT_NE(body.x.buffer, body.indices.buffer);
  EXPECT_EQ(body.x_stride, 48u);
  EXPECT_EQ(body.seed, uint64_t{9} << 40);
  EXPECT_EQ(body.temperature, 0.5f);
  EXPECT_EQ(body.top_p, 0.25f);
  EXPECT_EQ(body.top_k, 7u);
  EXPECT_EQ(body.dtype, CONCERT_ABI_FP16);
  EXPECT_EQ(body.index_dtype, CONCERT_ABI_INT64);
  EXPECT_EQ(body.step_dtype, CONCERT_ABI_INT32);
}

TEST_F(SubmitStepOpsTest, EveryFieldOfAnAttentionPrefillTravels) {
  AttentionPrefillOp op = {.tokens = 33, .sequences = 3, .q_heads = 4, .kv_heads = 2};
  op.head_dim = 64, op.length_max = 70;
  op.q = {x_, 16}, op.query_starts = {x_, 32}, op.page_table = {x_, 48};
  op.lengths = {x_, 64}, op.out = {x_, 80};
  op.cache = {.k = {y_, 96}, .v = {y_, 112}, .pages = 5, .page_size = 16};
  op.out_stride = 304, op.table_stride = 9;
  op.scale = 0.5f, op.soft_cap = 30, op.window = 11;
  EXPECT_TRUE(queue_.AttentionPrefill(op).submit_status().ok());
  const concert_attention_prefill_body& body = daemon_.descriptor(0).body.attention_prefill;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_ATTENTION_PREFILL);
  EXPECT_EQ(body.tokens, 33u);
  EXPECT_EQ(body.sequences, 3u);
  EXPECT_EQ(body.length_max, 70u);
  EXPECT_EQ(body.q_heads, 4);
  EXPECT_EQ(body.kv_heads, 2);
  EXPECT_EQ(body.head_dim, 64);
  uint64_t offset = 0;
  for (const concert_operand& operand : {body.q, body.query_starts, body.page_table, body.lengths,
                                         body.out, body.cache.k, body.cache.v}) {
    EXPECT_EQ(operand.offset, offset += 16);
  }
  EXPECT_EQ(body.cache.page_stride, 16u * 128);
  EXPECT_EQ(body.q_stride, 256u);
  EXPECT_EQ(body.out_stride, 304u);
  EXPECT_EQ(body.table_stride, 9u);
  EXPECT_EQ(body.window, 11u);
  EXPECT_EQ(body.scale, 0.5f);
  EXPECT_EQ(body.soft_cap, 30);
  EXPECT_EQ(body.dtype, CONCERT_ABI_BF16);
}

}  // namespace
}  // namespace concert
