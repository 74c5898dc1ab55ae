// What descriptors of the kinds from embedding on hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstring>

#include "tests/unit/client/submit_fixture.h"

namespace concert {
namespace {

using SubmitModelOpsTest = SubmitTest;
using testing::HasSubstr;

TEST_F(SubmitModelOpsTest, EveryFieldOfAnEmbeddingTravels) {
  const Ticket ticket = queue_.Embedding({.rows = 3,
                                          .columns = 40,
                                          .vocabulary = 70,
                                          .ids = {x_, 64},
                                          .table = {x_, 128},
                                          .out = {y_, 16},
                                          .out_stride = 48,
                                          .dtype = kFp16,
                                          .index_dtype = kInt64});
  EXPECT_TRUE(ticket.submit_status().ok());
  const concert_embedding_body& body = daemon_.descriptor(0).body.embedding;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_EMBEDDING);
  EXPECT_EQ(body.rows, 3u);
  EXPECT_EQ(body.columns, 40u);
  EXPECT_EQ(body.vocabulary, 70u);
  EXPECT_EQ(body.ids.offset, 64u);
  EXPECT_EQ(body.table.offset, 128u);
  EXPECT_EQ(body.out.offset, 16u);
  EXPECT_EQ(body.ids.buffer, body.table.buffer);
  EXPECT_NE(body.ids.buffer, body.out.buffer);
  EXPECT_EQ(body.table_stride, 40u);
  EXPECT_EQ(body.out_stride, 48u);
  EXPECT_EQ(body.dtype, CONCERT_ABI_FP16);
  EXPECT_EQ(body.index_dtype, CONCERT_ABI_INT64);
}

TEST_F(SubmitModelOpsTest, EveryFieldOfAnArgmaxTravels) {
  const Ticket ticket = queue_.Argmax({.rows = 3,
                                       .columns = 40,
                                       .x = {x_, 64},
                                       .indices = {y_, 16},
                                       .x_stride = 48,
                                       .dtype = kFp16,
                                       .index_dtype = kInt64});
  EXPECT_TRUE(ticket.submit_status().ok());
  const concert_argmax_body& body = daemon_.descriptor(0).body.argmax;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_ARGMAX);
  EXPECT_EQ(body.rows, 3u);
  EXPECT_EQ(body.columns, 40u);
  EXPECT_EQ(body.x.offset, 64u);
  EXPECT_EQ(body.indices.offset, 16u);
  EXPECT_NE(body.x.buffer, body.indices.buffer);
  EXPECT_EQ(body.x_stride, 48u);
  EXPECT_EQ(body.dtype, CONCERT_ABI_FP16);
  EXPECT_EQ(body.index_dtype, CONCERT_ABI_INT64);
}

TEST_F(SubmitModelOpsTest, EveryFieldOfARopeAppendTravels) {
  RopeAppendOp op = {.rows = 3, .q_heads = 4, .kv_heads = 2, .head_dim = 8, .positions_max = 70};
  op.q = {x_, 16}, op.k = {x_, 32}, op.v = {x_, 48};
  op.positions = {x_, 64}, op.slots = {x_, 80}, op.cos_sin = {x_, 96};
  op.cache = {.k = {y_, 112}, .v = {y_, 128}, .pages = 5, .page_size = 6};
  op.k_stride = 99, op.dtype = kFp16, op.slot_dtype = kInt64, op.interleaved = true;
  EXPECT_TRUE(queue_.RopeAppend(op).submit_status().ok());
  const concert_rope_append_body& body = daemon_.descriptor(0).body.rope_append;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_ROPE_APPEND);
  EXPECT_EQ(body.rows, 3u);
  EXPECT_EQ(body.positions_max, 70u);
  EXPECT_EQ(body.q_heads, 4);
  EXPECT_EQ(body.kv_heads, 2);
  EXPECT_EQ(body.head_dim, 8);
  EXPECT_EQ(body.rotary_dim, 8);
  uint64_t offset = 0;
  for (const concert_operand& operand : {body.q, body.k, body.v, body.positions, body.slots,
                                         body.cos_sin, body.cache.k, body.cache.v}) {
    EXPECT_EQ(operand.offset, offset += 16);
  }
  EXPECT_EQ(body.cache.pages, 5u);
  EXPECT_EQ(body.cache.page_size, 6u);
  EXPECT_EQ(body.cache.head_stride, 8u);
  EXPECT_EQ(body.cache.token_stride, 16u);
  EXPECT_EQ(body.cache.page_stride, 96u);
  EXPECT_EQ(body.q_stride, 32u);
  EXPECT_EQ(body.k_stride, 99u);
  EXPECT_EQ(body.v_stride, 16u);
  EXPECT_EQ(body.dtype, CONCERT_ABI_FP16);
  EXPECT_EQ(body.position_dtype, CONCERT_ABI_INT32);
  EXPECT_EQ(body.slot_dtype, CONCERT_ABI_INT64);
  EXPECT_EQ(body.flags, CONCERT_ROPE_INTERLEAVED);

  op.rotary_dim = 4;
  op.cache.head_stride = 48, op.cache.token_stride = 8, op.cache.page_stride = 100;
  EXPECT_TRUE(queue_.RopeAppend(op).submit_status().ok());
  const concert_rope_append_body& other = daemon_.descriptor(1).body.rope_append;
  EXPECT_EQ(other.rotary_dim, 4);
  EXPECT_EQ(other.cache.head_stride, 48u);
  EXPECT_EQ(other.cache.token_stride, 8u);
  EXPECT_EQ(other.cache.page_stride, 100u);
}

TEST_F(SubmitModelOpsTest, EveryFieldOfAnAttentionDecodeTravels) {
  AttentionDecodeOp op = {.rows = 3, .q_heads = 4, .kv_heads = 2, .head_dim = 64, .length_max = 70};
  op.q = {x_, 16}, op.page_table = {x_, 32}, op.lengths = {x_, 48}, op.out = {x_, 64};
  op.cache = {.k = {y_, 80}, .v = {y_, 96}, .pages = 5, .page_size = 16};
  op.out_stride = 300, op.table_stride = 9;
  op.scale = 0.5f, op.soft_cap = 30, op.window = 11;
  EXPECT_TRUE(queue_.AttentionDecode(op).submit_status().ok());
  const concert_attention_decode_body& body = daemon_.descriptor(0).body.attention_decode;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_ATTENTION_DECODE);
  EXPECT_EQ(body.rows, 3u);
  EXPECT_EQ(body.length_max, 70u);
  EXPECT_EQ(body.q_heads, 4);
  EXPECT_EQ(body.kv_heads, 2);
  EXPECT_EQ(body.head_dim, 64);
  uint64_t offset = 0;
  for (const concert_operand& operand :
       {body.q, body.page_table, body.lengths, body.out, body.cache.k, body.cache.v}) {
    EXPECT_EQ(operand.offset, offset += 16);
  }
  EXPECT_EQ(body.cache.pages, 5u);
  EXPECT_EQ(body.cache.page_size, 16u);
  EXPECT_EQ(body.cache.page_stride, 16u * 128);
  EXPECT_EQ(body.q_stride, 256u);
  EXPECT_EQ(body.out_stride, 300u);
  EXPECT_EQ(body.table_stride, 9u);
  EXPECT_EQ(body.window, 11u);
  EXPECT_EQ(body.scale, 0.5f);
  EXPECT_EQ(body.soft_cap, 30);
  EXPECT_EQ(body.dtype, CONCERT_ABI_BF16);
}

TEST_F(SubmitModelOpsTest, WhatACachesElementsAreTravels) {
  const KvCache cache = {.dtype = kFp8E4m3, .k_scale = 0.5f, .v_scale = 3};
  EXPECT_TRUE(queue_.RopeAppend({.cache = cache}).submit_status().ok());
  EXPECT_TRUE(queue_.AttentionDecode({.cache = cache}).submit_status().ok());
  EXPECT_TRUE(queue_.AttentionPrefill({.cache = cache}).submit_status().ok());
  const auto expect = [](const auto& body, uint8_t dtype, float k_scale, float v_scale) {
    EXPECT_EQ(body.cache_dtype, dtype);
    EXPECT_EQ(std::bit_cast<float>(body.cache.k.scales), k_scale);
    EXPECT_EQ(std::bit_cast<float>(body.cache.v.scales), v_scale);
  };
  expect(daemon_.descriptor(0).body.rope_append, CONCERT_ABI_FP8_E4M3, 0.5f, 3);
  expect(daemon_.descriptor(1).body.attention_decode, CONCERT_ABI_FP8_E4M3, 0.5f, 3);
  expect(daemon_.descriptor(2).body.attention_prefill, CONCERT_ABI_FP8_E4M3, 0.5f, 3);
  // What is so by default is not said.
  EXPECT_TRUE(
      queue_.RopeAppend({.cache = {.dtype = kFp16, .k_scale = 1, .v_scale = 1}, .dtype = kFp16})
          .submit_status()
          .ok());
  expect(daemon_.descriptor(3).body.rope_append, 0, 0, 0);
}

// Where an older program's struct ends is padding, which may hold anything.
TEST_F(SubmitModelOpsTest, AnOlderProgramsPaddingSaysNothing) {
  concert_attention_decode op = {};
  std::memset(&op, 0xff, sizeof(op));
  op.struct_size = offsetof(concert_attention_decode, cache_dtype);
  op.dtype = CONCERT_BF16;
  op.q = op.page_table = op.lengths = op.out = op.cache.k = op.cache.v = {};
  EXPECT_EQ(concert_submit_attention_decode(queue_.get(), &op, nullptr, nullptr, nullptr),
            CONCERT_OK);
  EXPECT_EQ(daemon_.descriptor(0).body.attention_decode.cache_dtype, 0);
}

class DaemonWithoutFp8Caches : public SubmitTest {
 protected:
  DaemonWithoutFp8Caches()
      : SubmitTest(test::FakeDaemon::Options{.edit_hello = [](concert_hello_reply& reply) {
          reply.features &= ~CONCERT_FEATURE_FP8_KV;
        }}) {}
};

TEST_F(DaemonWithoutFp8Caches, GetsNone) {
  const auto expect_refusal = [](const Status& status) {
    EXPECT_EQ(status.code(), CONCERT_UNIMPLEMENTED);
    EXPECT_THAT(status.message(),
                HasSubstr("the cache has a dtype or scales of its own, which this daemon does not "
                          "know; update concertd"));
  };
  const KvCache fp8 = {.dtype = kFp8E4m3};
  expect_refusal(queue_.RopeAppend({.cache = fp8}).submit_status());
  expect_refusal(queue_.AttentionDecode({.cache = fp8}).submit_status());
  expect_refusal(queue_.AttentionPrefill({.cache = fp8}).submit_status());
  expect_refusal(queue_.AttentionDecode({.cache = {.v_scale = 2}}).submit_status());
  EXPECT_EQ(daemon_.tail(), 0u);
  EXPECT_TRUE(queue_.AttentionDecode({.cache = {.dtype = kBf16}}).submit_status().ok());
}

TEST_F(SubmitModelOpsTest, EveryFieldOfALayerNormTravels) {
  const Ticket ticket = queue_.LayerNorm({.rows = 3,
                                          .columns = 40,
                                          .x = {x_, 16},
                                          .weight = {x_, 32},
                                          .out = {y_, 48},
                                          .bias = {x_, 64},
                                          .residual = {y_, 80},
                                          .residual_stride = 48,
                                          .epsilon = 1e-3f,
                                          .dtype = kFp16});
  EXPECT_TRUE(ticket.submit_status().ok());
  const concert_layer_norm_body& body = daemon_.descriptor(0).body.layer_norm;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_LAYER_NORM);
  EXPECT_EQ(body.rows, 3u);
  EXPECT_EQ(body.columns, 40u);
  uint64_t offset = 0;
  for (const concert_operand& operand : {body.x, body.weight, body.out, body.bias, body.residual}) {
    EXPECT_EQ(operand.offset, offset += 16);
  }
  EXPECT_EQ(body.x_stride, 40u);
  EXPECT_EQ(body.residual_stride, 48u);
  EXPECT_EQ(body.out_stride, 40u);
  EXPECT_EQ(body.epsilon, 1e-3f);
  EXPECT_EQ(body.dtype, CONCERT_ABI_FP16);
}

TEST_F(SubmitModelOpsTest, EveryFieldOfAnElementwiseTravels) {
  ElementwiseOp op = {.function = kMultiply, .rows = 3, .columns = 40};
  op.x = {x_, 16}, op.y = {x_, 32}, op.out = {y_, 48};
  op.x_stride = 48, op.dtype = kFp16;
  EXPECT_TRUE(queue_.Elementwise(op).submit_status().ok());
  const concert_elementwise_body& body = daemon_.descriptor(0).body.elementwise;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_ELEMENTWISE);
  EXPECT_EQ(body.rows, 3u);
  EXPECT_EQ(body.columns, 40u);
  EXPECT_EQ(body.x.offset, 16u);
  EXPECT_EQ(body.y.offset, 32u);
  EXPECT_EQ(body.out.offset, 48u);
  EXPECT_EQ(body.x_stride, 48u);
  EXPECT_EQ(body.y_stride, 40u);
  EXPECT_EQ(body.out_stride, 40u);
  EXPECT_EQ(body.function, CONCERT_ABI_MULTIPLY);
  EXPECT_EQ(body.dtype, CONCERT_ABI_FP16);
  EXPECT_EQ(body.out_dtype, CONCERT_ABI_FP16);

  op.y_stride = CONCERT_STRIDE_SHARED, op.out_dtype = kFp32;
  EXPECT_TRUE(queue_.Elementwise(op).submit_status().ok());
  EXPECT_EQ(daemon_.descriptor(1).body.elementwise.y_stride, 0u);
  EXPECT_EQ(daemon_.descriptor(1).body.elementwise.out_dtype, CONCERT_ABI_FP32);
}

}  // namespace
}  // namespace concert
