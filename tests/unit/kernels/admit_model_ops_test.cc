// Bad input of the kinds from embedding on, and what the good is worth and touches.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <utility>

#include "tests/unit/kernels/admit_fixture.h"
#include "tests/unit/kernels/refusals.h"

namespace concert::kernels {
namespace {

using D = concert_descriptor;
using Modes = std::map<concert_field, AccessMode>;

TEST(AdmitModelOpsTest, EveryBadEmbeddingHasItsSentence) {
  ExpectRefusals(
      GoodEmbedding(),
      {
          {[](D& d) { d.body.embedding.rows = 0; }, "rows is 0"},
          {[](D& d) { d.body.embedding.columns = (1 << 24) + 1; }, "columns is 16777217"},
          {[](D& d) { d.body.embedding.vocabulary = 0; },
           "vocabulary is 0; it must be between 1 and 16777216"},
          {[](D& d) { d.body.embedding.dtype = 0; }, "dtype is 0"},
          {[](D& d) { d.body.embedding.dtype = CONCERT_ABI_INT32; }, "dtype is 5"},
          {[](D& d) { d.body.embedding.index_dtype = CONCERT_ABI_FP32; },
           "index_dtype is 3; it must be between 5 and 6"},
          {[](D& d) { d.body.embedding.index_dtype = 7; }, "index_dtype is 7"},
          {[](D& d) { d.body.embedding.reserved0 = 1; }, "of the embedding descriptor is not zero"},
          {[](D& d) { d.body.embedding.reserved1 = 1; }, "is not zero"},
          {[](D& d) { d.body.embedding.reserved2 = 1; }, "is not zero"},
          {[](D& d) { d.body.embedding.reserved3[12] = 1; }, "is not zero"},
          {[](D& d) { d.body.embedding.ids.scales = 1; }, "is not zero"},
          {[](D& d) { d.flags = 2; }, "is not zero"},
          {[](D& d) { d.body.embedding.ids = {}; }, "ids is required"},
          {[](D& d) { d.body.embedding.table = {}; }, "table is required"},
          {[](D& d) { d.body.embedding.out = {}; }, "out is required"},
          {[](D& d) { d.body.embedding.ids.buffer = 4; }, "ids.buffer is 4, which is not a buffer"},
          {[](D& d) { d.body.embedding.table.buffer = 5; }, "table lies on GPU 1"},
          {[](D& d) { d.body.embedding.ids.offset = 4; }, "ids.offset 4 is not a multiple of 8"},
          {[](D& d) { d.body.embedding.ids.offset = kMiB - 56; }, "ids needs 64 bytes"},
          {[](D& d) { d.body.embedding.ids.offset = kHuge - 7; }, "extent of ids does not fit"},
          {[](D& d) { d.body.embedding.table_stride = 63; },
           "table_stride is 63; a row holds 64 elements"},
          {[](D& d) { d.body.embedding.out_stride = 0; }, "out_stride is 0"},
          {[](D& d) { d.body.embedding.table_stride = kHuge / 9; }, "extent of table does not fit"},
          {[](D& d) { d.body.embedding.vocabulary = 1 << 20; }, "table needs 134217728 bytes"},
          {[](D& d) { d.body.embedding.out.offset = kMiB - 1022; }, "out needs 1024 bytes"},
          {[](D& d) { d.body.embedding.out.offset = 1; }, "out.offset 1 is not a multiple of 2"},
          {[](D& d) { d.body.embedding.out = d.body.embedding.ids; }, "out overlaps ids"},
          {[](D& d) { d.body.embedding.out = d.body.embedding.table; }, "out overlaps table"},
      });
}

TEST(AdmitModelOpsTest, AnEmbeddingCostsWhatItMovesAndMayReadItsTableEarly) {
  Op op;
  ASSERT_TRUE(Admit(GoodEmbedding(), op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 2 * 8 * 64 * 2 + 8 * 8u);
  EXPECT_TRUE(op.work.chains());
  EXPECT_EQ(ModesOf(GoodEmbedding()), (Modes{{CONCERT_FIELD_IDS, AccessMode::kRead},
                                             {CONCERT_FIELD_TABLE, AccessMode::kReadEarly},
                                             {CONCERT_FIELD_OUT, AccessMode::kWrite}}));
}

TEST(AdmitModelOpsTest, EveryBadArgmaxHasItsSentence) {
  ExpectRefusals(
      GoodArgmax(),
      {
          {[](D& d) { d.body.argmax.rows = 0; }, "rows is 0"},
          {[](D& d) { d.body.argmax.columns = UINT32_MAX; }, "columns is 4294967295"},
          {[](D& d) { d.body.argmax.dtype = CONCERT_ABI_FP8_E4M3; }, "dtype is 4"},
          {[](D& d) { d.body.argmax.index_dtype = CONCERT_ABI_FP8_E4M3; }, "index_dtype is 4"},
          {[](D& d) { d.body.argmax.reserved0 = 1; }, "of the argmax descriptor is not zero"},
          {[](D& d) { d.body.argmax.reserved1 = 1; }, "is not zero"},
          {[](D& d) { d.body.argmax.reserved2[16] = 1; }, "is not zero"},
          {[](D& d) { d.body.argmax.x.scales = 1; }, "is not zero"},
          {[](D& d) { d.body.argmax.x = {}; }, "x is required"},
          {[](D& d) { d.body.argmax.indices = {}; }, "indices is required"},
          {[](D& d) { d.body.argmax.indices.buffer = 5; }, "indices lies on GPU 1"},
          {[](D& d) { d.body.argmax.x_stride = 63; }, "x_stride is 63"},
          {[](D& d) { d.body.argmax.x_stride = kHuge / 2; }, "extent of x does not fit"},
          {[](D& d) { d.body.argmax.x.offset = kMiB - 1022; }, "x needs 1024 bytes"},
          {[](D& d) { d.body.argmax.indices.offset = kMiB - 28; }, "indices needs 32 bytes"},
          {[](D& d) { d.body.argmax.indices.offset = 2; },
           "indices.offset 2 is not a multiple of 4"},
          {[](D& d) {
             d.body.argmax.indices = {1, 0, 512};
           },
           "indices overlaps x"},
      });
}

TEST(AdmitModelOpsTest, AnArgmaxWritesItsIndices) {
  Op op;
  ASSERT_TRUE(Admit(GoodArgmax(), op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 8 * 64 * 2 + 8 * 4u);
  EXPECT_TRUE(op.work.chains());
  EXPECT_EQ(ModesOf(GoodArgmax()), (Modes{{CONCERT_FIELD_INPUT, AccessMode::kRead},
                                          {CONCERT_FIELD_INDICES, AccessMode::kWrite}}));
}

TEST(AdmitModelOpsTest, EveryBadSizeOfARopeAppendHasItsSentence) {
  ExpectRefusals(
      GoodRopeAppend(),
      {
          {[](D& d) { d.body.rope_append.rows = 0; }, "rows is 0"},
          {[](D& d) { d.body.rope_append.positions_max = 0; }, "positions_max is 0"},
          {[](D& d) { d.body.rope_append.q_heads = 0; }, "q_heads is 0"},
          {[](D& d) { d.body.rope_append.q_heads = 1025; },
           "q_heads is 1025; it must be between 1 and 1024"},
          {[](D& d) { d.body.rope_append.kv_heads = 0; }, "kv_heads is 0"},
          {[](D& d) { d.body.rope_append.head_dim = 1026; }, "head_dim is 1026"},
          {[](D& d) { d.body.rope_append.head_dim = 63; },
           "head_dim is 63, which is not a multiple of 2"},
          {[](D& d) { d.body.rope_append.rotary_dim = 0; },
           "rotary_dim is 0; it must be between 2 and 64"},
          {[](D& d) { d.body.rope_append.rotary_dim = 66; }, "rotary_dim is 66"},
          {[](D& d) { d.body.rope_append.rotary_dim = 31; },
           "rotary_dim is 31, which is not a multiple of 2"},
          {[](D& d) { d.body.rope_append.dtype = 4; }, "dtype is 4"},
          {[](D& d) { d.body.rope_append.position_dtype = 1; }, "position_dtype is 1"},
          {[](D& d) { d.body.rope_append.slot_dtype = 7; }, "slot_dtype is 7"},
          {[](D& d) { d.body.rope_append.flags = 2; }, "flags is 2"},
          {[](D& d) { d.body.rope_append.reserved0 = 1; },
           "of the rope_append descriptor is not zero"},
          {[](D& d) { d.body.rope_append.reserved1 = 1; }, "is not zero"},
          {[](D& d) { d.body.rope_append.v.scales = 1; }, "is not zero"},
          {[](D& d) { d.body.rope_append.q_stride = 255; }, "q_stride is 255"},
          {[](D& d) { d.body.rope_append.k_stride = 127; }, "k_stride is 127"},
          {[](D& d) { d.body.rope_append.v_stride = 0; }, "v_stride is 0"},
          {[](D& d) { d.body.rope_append.cache.pages = 0; }, "pages is 0"},
          {[](D& d) { d.body.rope_append.cache.pages = (1 << 24) + 1; }, "pages is 16777217"},
          {[](D& d) { d.body.rope_append.cache.page_size = 0; }, "page_size is 0"},
          {[](D& d) { d.body.rope_append.cache.page_size = UINT32_MAX; },
           "page_size is 4294967295"},
      });
}

TEST(AdmitModelOpsTest, EveryBadOperandOfARopeAppendHasItsSentence) {
  ExpectRefusals(
      GoodRopeAppend(),
      {
          {[](D& d) { d.body.rope_append.q = {}; }, "q is required"},
          {[](D& d) { d.body.rope_append.k = {}; }, "k is required"},
          {[](D& d) { d.body.rope_append.v = {}; }, "v is required"},
          {[](D& d) { d.body.rope_append.positions = {}; }, "positions is required"},
          {[](D& d) { d.body.rope_append.slots = {}; }, "slots is required"},
          {[](D& d) { d.body.rope_append.cos_sin = {}; }, "cos_sin is required"},
          {[](D& d) { d.body.rope_append.cache.k = {}; }, "k_cache is required"},
          {[](D& d) { d.body.rope_append.cache.v = {}; }, "v_cache is required"},
          {[](D& d) { d.body.rope_append.cache.v.buffer = 9; }, "v_cache.buffer is 9"},
          {[](D& d) { d.body.rope_append.cache.k.buffer = 5; }, "k_cache lies on GPU 1"},
          {[](D& d) { d.body.rope_append.q.offset = kMiB - 2; }, "q needs"},
          {[](D& d) { d.body.rope_append.positions.offset = kMiB - 56; },
           "positions needs 64 bytes"},
          {[](D& d) { d.body.rope_append.slots.offset = kMiB - 28; }, "slots needs 32 bytes"},
          {[](D& d) { d.body.rope_append.cos_sin.offset = 2; }, "cos_sin.offset 2"},
          {[](D& d) { d.body.rope_append.positions_max = 1 << 24; },
           "cos_sin needs 2147483648 bytes"},
          {[](D& d) { d.body.rope_append.cache.page_stride = kHuge / 2; },
           "extent of k_cache does not fit"},
          {[](D& d) { d.body.rope_append.cache.pages = 1 << 20; }, "k_cache needs"},
          {[](D& d) { d.body.rope_append.cache.head_stride = UINT32_MAX; }, "k_cache needs"},
          {[](D& d) { d.body.rope_append.cache.token_stride = UINT32_MAX; }, "k_cache needs"},
          {[](D& d) { d.body.rope_append.cache.v.offset = kMiB - 64; }, "v_cache needs"},
          {[](D& d) { d.body.rope_append.k = d.body.rope_append.q; }, "q overlaps k"},
          {[](D& d) {
             d.body.rope_append.cos_sin = {1, 0, 0};
           },
           "q overlaps cos_sin"},
          {[](D& d) {
             d.body.rope_append.slots = {2, 0, 0};
           },
           "k_cache overlaps slots"},
          {[](D& d) {
             d.body.rope_append.cache.v = {2, 0, 128};
           },
           "k_cache overlaps v_cache"},
      });
}

TEST(AdmitModelOpsTest, ARopeAppendRotatesInPlaceAndWritesTheCache) {
  Op op;
  ASSERT_TRUE(Admit(GoodRopeAppend(), op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 8 * (2 * 8 * 64 * 2 + 32 * 4 + 8 + 4u));
  EXPECT_TRUE(op.work.chains());
  EXPECT_EQ(ModesOf(GoodRopeAppend()), (Modes{{CONCERT_FIELD_Q, AccessMode::kReadWrite},
                                              {CONCERT_FIELD_K, AccessMode::kRead},
                                              {CONCERT_FIELD_V, AccessMode::kRead},
                                              {CONCERT_FIELD_POSITIONS, AccessMode::kRead},
                                              {CONCERT_FIELD_SLOTS, AccessMode::kRead},
                                              {CONCERT_FIELD_COS_SIN, AccessMode::kReadEarly},
                                              {CONCERT_FIELD_K_CACHE, AccessMode::kWrite},
                                              {CONCERT_FIELD_V_CACHE, AccessMode::kWrite}}));
}

TEST(AdmitModelOpsTest, EveryBadSizeOfAnAttentionDecodeHasItsSentence) {
  ExpectRefusals(
      GoodAttentionDecode(),
      {
          {[](D& d) { d.body.attention_decode.rows = 0; }, "rows is 0"},
          {[](D& d) { d.body.attention_decode.rows = 65537; }, "rows is 65537"},
          {[](D& d) { d.body.attention_decode.kv_heads = 0; }, "kv_heads is 0"},
          {[](D& d) { d.body.attention_decode.kv_heads = 1025; }, "kv_heads is 1025"},
          {[](D& d) { d.body.attention_decode.q_heads = 1; },
           "q_heads is 1; it must be between 2 and 16"},
          {[](D& d) { d.body.attention_decode.q_heads = 18; }, "q_heads is 18"},
          {[](D& d) { d.body.attention_decode.q_heads = 3; },
           "q_heads is 3, which is not a multiple of 2"},
          {[](D& d) { d.body.attention_decode.head_dim = 32; },
           "head_dim is 32; it must be between 64 and 256"},
          {[](D& d) { d.body.attention_decode.head_dim = 512; }, "head_dim is 512"},
          {[](D& d) { d.body.attention_decode.head_dim = 192; },
           "head_dim is 192, which is not one of its values; the highest is 256"},
          {[](D& d) { d.body.attention_decode.head_dim = 96; },
           "head_dim is 96, which is not a multiple of 64"},
          {[](D& d) { d.body.attention_decode.length_max = 0; }, "length_max is 0"},
          {[](D& d) { d.body.attention_decode.length_max = 65; },
           "length_max is 65; it must be between 1 and 64"},
          {[](D& d) { d.body.attention_decode.dtype = 0; }, "dtype is 0"},
          {[](D& d) { d.body.attention_decode.dtype = CONCERT_ABI_FP16; }, "dtype is 2"},
          {[](D& d) { d.body.attention_decode.q_stride = 260; },
           "q_stride is 260, which is not a multiple of 8"},
          {[](D& d) { d.body.attention_decode.q_stride = 248; }, "q_stride is 248"},
          {[](D& d) { d.body.attention_decode.out_stride = 255; }, "out_stride is 255"},
          {[](D& d) { d.body.attention_decode.cache.page_stride = 4; }, "page_stride is 4"},
          {[](D& d) { d.body.attention_decode.cache.token_stride = 4; }, "token_stride is 4"},
          {[](D& d) { d.body.attention_decode.cache.head_stride = 4; }, "head_stride is 4"},
          {[](D& d) { d.body.attention_decode.cache.pages = 0; }, "pages is 0"},
          {[](D& d) { d.body.attention_decode.cache.page_size = 14; },
           "length_max is 60; it must be between 1 and 56"},
          {[](D& d) { d.body.attention_decode.page_table = {}; },
           "length_max is 60; it must be between 1 and 16"},
          {[](D& d) {
             d.body.attention_decode.page_table = {};
             d.body.attention_decode.cache.pages = 7;
           },
           "pages is 7; it must be between 8 and 16777216"},
          {[](D& d) { d.body.attention_decode.reserved0 = 1; },
           "of the attention_decode descriptor is not zero"},
          {[](D& d) { d.body.attention_decode.reserved1[5] = 1; }, "is not zero"},
          {[](D& d) { d.body.attention_decode.reserved2[2] = 1; }, "is not zero"},
          {[](D& d) { d.body.attention_decode.lengths.scales = 1; }, "is not zero"},
      });
}

TEST(AdmitModelOpsTest, EveryBadOperandOfAnAttentionDecodeHasItsSentence) {
  ExpectRefusals(
      GoodAttentionDecode(),
      {
          {[](D& d) { d.body.attention_decode.q = {}; }, "q is required"},
          {[](D& d) { d.body.attention_decode.lengths = {}; }, "lengths is required"},
          {[](D& d) { d.body.attention_decode.out = {}; }, "out is required"},
          {[](D& d) { d.body.attention_decode.cache.k = {}; }, "k_cache is required"},
          {[](D& d) { d.body.attention_decode.cache.v = {}; }, "v_cache is required"},
          {[](D& d) { d.body.attention_decode.page_table.buffer = 4; },
           "page_table.buffer is 4, which is not a buffer"},
          {[](D& d) { d.body.attention_decode.cache.v.buffer = 5; }, "v_cache lies on GPU 1"},
          {[](D& d) { d.body.attention_decode.q.offset = 8; },
           "q.offset 8 is not a multiple of 16 bytes"},
          {[](D& d) { d.body.attention_decode.cache.k.offset = 2; },
           "k_cache.offset 2 is not a multiple of 16 bytes"},
          {[](D& d) { d.body.attention_decode.cache.v.offset = 8; },
           "v_cache.offset 8 is not a multiple of 16 bytes"},
          {[](D& d) { d.body.attention_decode.page_table.offset = 2; }, "page_table.offset 2"},
          {[](D& d) { d.body.attention_decode.lengths.offset = 1; }, "lengths.offset 1"},
          {[](D& d) { d.body.attention_decode.out.offset = 1; }, "out.offset 1"},
          {[](D& d) { d.body.attention_decode.q.offset = kMiB - 16; }, "q needs 4096 bytes"},
          {[](D& d) { d.body.attention_decode.page_table.offset = kMiB - 124; },
           "page_table needs 128 bytes"},
          {[](D& d) { d.body.attention_decode.table_stride = UINT32_MAX; }, "page_table needs"},
          {[](D& d) { d.body.attention_decode.lengths.offset = kMiB - 28; },
           "lengths needs 32 bytes"},
          {[](D& d) { d.body.attention_decode.cache.pages = 1 << 20; }, "k_cache needs"},
          {[](D& d) { d.body.attention_decode.cache.page_stride = kHuge / 16 * 8; },
           "extent of k_cache does not fit"},
          {[](D& d) { d.body.attention_decode.out = d.body.attention_decode.q; }, "out overlaps q"},
          {[](D& d) {
             d.body.attention_decode.out = {1, 0, 20480};
           },
           "out overlaps lengths"},
          {[](D& d) {
             d.body.attention_decode.out = {2, 0, 0};
           },
           "out overlaps k_cache"},
      });
}

TEST(AdmitModelOpsTest, AnAttentionDecodeCostsWhatItsLongestRowsRead) {
  D d = GoodAttentionDecode();
  Op op;
  ASSERT_TRUE(Admit(d, op).ok());
  const uint64_t rows_bytes = 8 * (4 * 64 * 4 + 4);
  EXPECT_EQ(op.work.hbm_bytes, 8 * 60 * 2 * 64 * 4u + rows_bytes);
  EXPECT_EQ(op.work.runs_on, policies::RunsOn::kSms);
  EXPECT_FALSE(op.work.is_gemm());
  EXPECT_FALSE(op.work.chains());
  EXPECT_EQ(ModesOf(d), (Modes{{CONCERT_FIELD_Q, AccessMode::kRead},
                               {CONCERT_FIELD_PAGE_TABLE, AccessMode::kRead},
                               {CONCERT_FIELD_LENGTHS, AccessMode::kRead},
                               {CONCERT_FIELD_OUT, AccessMode::kWrite},
                               {CONCERT_FIELD_K_CACHE, AccessMode::kRead},
                               {CONCERT_FIELD_V_CACHE, AccessMode::kRead}}));
  d.body.attention_decode.window = 10;
  ASSERT_TRUE(Admit(d, op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 8 * 10 * 2 * 64 * 4u + rows_bytes);
}

// In one launch all have the sizes, bounds and scales of the first.
TEST(AdmitModelOpsTest, AttentionGoesWithWhatIsAlikeButForAddresses) {
  using Body = concert_attention_decode_body;
  const auto goes = [](const std::function<void(Body&)>& change) {
    D changed = GoodAttentionDecode();
    change(changed.body.attention_decode);
    Op op, other;
    EXPECT_TRUE(Admit(GoodAttentionDecode(), op).ok());
    EXPECT_TRUE(Admit(changed, other).ok()) << Admit(changed, other).ToString();
    const OpKind& kind = *FindOpKind(CONCERT_OP_ATTENTION_DECODE);
    EXPECT_EQ(kind.goes_with(op, other), kind.goes_with(other, op));
    return kind.goes_with(op, other);
  };
  EXPECT_TRUE(goes([](Body&) {}));
  EXPECT_TRUE(goes([](Body& b) { b.q.offset += 4096, b.out.offset += 4096; }));
  EXPECT_TRUE(goes([](Body& b) { b.lengths.offset += 4, b.page_table.offset += 4; }));
  EXPECT_TRUE(goes([](Body& b) { std::swap(b.cache.k, b.cache.v); }));
  EXPECT_FALSE(goes([](Body& b) { --b.cache.pages; }));
  EXPECT_FALSE(goes([](Body& b) { --b.rows; }));
  EXPECT_FALSE(goes([](Body& b) { --b.length_max; }));
  EXPECT_FALSE(goes([](Body& b) { b.window = 7; }));
  EXPECT_FALSE(goes([](Body& b) { b.scale = 0.25f; }));
  EXPECT_FALSE(goes([](Body& b) { b.soft_cap = 30; }));
  EXPECT_FALSE(goes([](Body& b) { b.table_stride = 5; }));
  EXPECT_FALSE(goes([](Body& b) { b.q_stride += 8; }));
}

TEST(AdmitModelOpsTest, WithoutATableEachRowHasAPage) {
  D d = GoodAttentionDecode();
  d.body.attention_decode.page_table = {};
  d.body.attention_decode.length_max = 16;
  Op op;
  ASSERT_TRUE(Admit(d, op).ok()) << Admit(d, op).ToString();
  EXPECT_EQ(op.attention_decode.page_table, 0u);
  EXPECT_EQ(op.buffers.size(), 5u);
}

TEST(AdmitModelOpsTest, PagesOfKeysAndValuesMayTakeTurns) {
  D d = GoodRopeAppend();
  concert_kv_cache_abi& cache = d.body.rope_append.cache;
  cache.v = {2, 0, 16 * 128 * 2};
  cache.page_stride *= 2;
  Op op;
  EXPECT_TRUE(Admit(d, op).ok()) << Admit(d, op).ToString();
  cache.v.offset -= 2;
  EXPECT_EQ(Admit(d, op).message, CONCERT_MESSAGE_OVERLAP);
}

// Columns of one matrix, side by side.
TEST(AdmitModelOpsTest, RowsOfOneStrideMayLieSideBySide) {
  D d = GoodEmbedding();
  d.body.embedding.table = {2, 0, 0};
  d.body.embedding.out = {2, 0, 128};
  d.body.embedding.table_stride = d.body.embedding.out_stride = 128;
  Op op;
  EXPECT_TRUE(Admit(d, op).ok());
  d.body.embedding.out.offset = 126;
  EXPECT_EQ(Admit(d, op).message, CONCERT_MESSAGE_OVERLAP);
}

}  // namespace
}  // namespace concert::kernels
