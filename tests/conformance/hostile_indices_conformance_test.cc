// Kinds that read indices, on every backend, while their client writes them.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/conformance/model_ops_fixture.h"
#include "tests/support/seed.h"

namespace concert::daemon::conformance {
namespace {

// Indices that a client writes while ops that read them run, whatever it writes: nothing outside of
// what they may write changes, and what comes after them finds the device whole.
class HostileIndicesTest : public ModelOpsConformanceTest {
 protected:
  static constexpr uint64_t kGuard = 4096;  // bytes before and behind what may be written
  static constexpr uint32_t kRows = 16, kPages = 5, kPageSize = 3, kHeads = 2, kDim = 64;
  static constexpr uint32_t kColumns = kHeads * kDim, kTablePages = 4, kVocabulary = 9;
  static constexpr uint64_t kRowsBytes = uint64_t{2} * kRows * kColumns;
  static constexpr uint64_t kCacheBytes = uint64_t{2} * kPages * kPageSize * kColumns;

  // Ids, positions, slots, pages and lengths: all of them.
  Bytes RandomIndices() {
    Bytes bytes(8 * kRows * kTablePages);
    for (size_t at = 0; at < bytes.size(); at += 4) {
      const uint32_t anything = random_();
      const uint32_t index = anything % 4 == 0 ? anything : anything % 32 - 4;
      std::memcpy(&bytes[at], &index, 4);
    }
    return bytes;
  }

  Op MakeEmbedding(uint32_t indices, uint8_t index_dtype) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_EMBEDDING;
    concert_embedding_body& body = descriptor.body.embedding;
    body.rows = kRows, body.columns = kColumns, body.vocabulary = kVocabulary;
    body.ids.buffer = indices;
    body.table.buffer = input_;
    body.out = {written_, 0, kGuard};
    body.table_stride = body.out_stride = kColumns;
    body.dtype = CONCERT_ABI_BF16, body.index_dtype = index_dtype;
    return Admit(descriptor);
  }
  concert_kv_cache_abi Cache() const {
    concert_kv_cache_abi cache{};
    cache.k = {written_, 0, kGuard + kRowsBytes};
    cache.v = {written_, 0, kGuard + kRowsBytes + kCacheBytes};
    cache.pages = kPages, cache.page_size = kPageSize;
    cache.page_stride = kPageSize * kColumns;
    cache.token_stride = kColumns, cache.head_stride = kDim;
    return cache;
  }
  Op MakeRopeAppend(uint32_t indices, uint8_t index_dtype) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ROPE_APPEND;
    concert_rope_append_body& body = descriptor.body.rope_append;
    body.rows = kRows, body.positions_max = 7;
    body.q_heads = body.kv_heads = kHeads, body.head_dim = body.rotary_dim = kDim;
    body.q = {written_, 0, kGuard};
    body.k.buffer = body.v.buffer = body.cos_sin.buffer = input_;
    body.positions.buffer = body.slots.buffer = indices;
    body.cache = Cache();
    body.q_stride = body.k_stride = body.v_stride = kColumns;
    body.dtype = CONCERT_ABI_BF16, body.position_dtype = body.slot_dtype = index_dtype;
    return Admit(descriptor);
  }
  Op MakeAttention(uint32_t indices) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ATTENTION_DECODE;
    concert_attention_decode_body& body = descriptor.body.attention_decode;
    body.rows = kRows, body.length_max = kTablePages * kPageSize;
    body.q_heads = body.kv_heads = kHeads, body.head_dim = kDim;
    body.q.buffer = input_;
    body.page_table.buffer = body.lengths.buffer = indices;
    body.out = {written_, 0, kGuard};
    body.cache = Cache();
    body.q_stride = body.out_stride = kColumns, body.table_stride = kTablePages;
    body.scale = 1, body.dtype = CONCERT_ABI_BF16;
    return Admit(descriptor);
  }

  Op MakePrefill(uint32_t indices) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ATTENTION_PREFILL;
    concert_attention_prefill_body& body = descriptor.body.attention_prefill;
    body.tokens = kRows, body.sequences = kRows, body.length_max = kTablePages * kPageSize;
    body.q_heads = body.kv_heads = kHeads, body.head_dim = kDim;
    body.q.buffer = input_;
    body.query_starts.buffer = body.page_table.buffer = body.lengths.buffer = indices;
    body.out = {written_, 0, kGuard};
    body.cache = Cache();
    body.q_stride = body.out_stride = kColumns, body.table_stride = kTablePages;
    body.scale = 1, body.dtype = CONCERT_ABI_BF16;
    return Admit(descriptor);
  }

  // Of numbers that the client writes, too.
  Op MakeAdvance(uint32_t indices, uint8_t index_dtype) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_ADVANCE;
    concert_advance_body& body = descriptor.body.advance;
    body.rows = kRows, body.counter_max = 7;
    body.counters.buffer = indices;
    body.slots = {indices, 0, 8 * kRows};
    body.counter_dtype = body.slot_dtype = index_dtype;
    return Admit(descriptor);
  }

  // Logits and all that rows have of their own change while a row is drawn.
  Op MakeSample(uint32_t indices, uint8_t index_dtype) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_SAMPLE;
    concert_sample_body& body = descriptor.body.sample;
    body.rows = kRows, body.columns = body.x_stride = 8;
    body.x.buffer = indices;
    body.indices = {written_, 0, kGuard};
    body.temperatures.buffer = body.top_ks.buffer = body.top_ps.buffer = indices;
    body.seeds.buffer = body.steps.buffer = indices;
    body.dtype = CONCERT_ABI_BF16, body.index_dtype = body.step_dtype = index_dtype;
    return Admit(descriptor);
  }

  std::mt19937 random_{static_cast<uint32_t>(test::Seed())};
  uint32_t input_ = 0, written_ = 0;
};

TEST_P(HostileIndicesTest, ReachNothingElse) {
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  constexpr uint64_t kMayBeWritten = kRowsBytes + 2 * kCacheBytes;
  input_ = NewBuffer(Encode(Dtype::kBf16, RandomNumbers(Dtype::kBf16, 16384, 1)));
  written_ = NewPoisoned(2 * kGuard + kMayBeWritten);
  const uint32_t indices = NewBuffer(RandomIndices());
  std::vector<Op> ops = {MakeAttention(indices), MakePrefill(indices)};
  for (const uint8_t index_dtype : kIndexDtypes) {
    ops.push_back(MakeEmbedding(indices, index_dtype));
    ops.push_back(MakeRopeAppend(indices, index_dtype));
    ops.push_back(MakeAdvance(indices, index_dtype));
    ops.push_back(MakeSample(indices, index_dtype));
  }
  uint64_t value = 0;
  for (int round = 0; round < 200; ++round) {
    for (const Op& op : ops) ASSERT_NO_FATAL_FAILURE(Launch(0, {&op}));
    ASSERT_NO_FATAL_FAILURE(Signal(0, 1, ++value));
    WriteAsClient(indices, RandomIndices());
    WaitFor(1, value);
  }
  const Bytes bytes = Read(written_, 2 * kGuard + kMayBeWritten);
  for (uint64_t i = 0; i < kGuard; ++i) {
    ASSERT_EQ(bytes[i], kPoison) << i << " bytes into what lies before";
    ASSERT_EQ(bytes[kGuard + kMayBeWritten + i], kPoison) << i << " bytes into what lies behind";
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(HostileIndicesTest);

}  // namespace
}  // namespace concert::daemon::conformance
