// What random programs have of caches and attention.
#include "tests/e2e/random_author.h"

namespace concert::test {

Author::Cache Author::MakeCache(uint32_t sequences) {
  Cache cache;
  if (!long_) {
    cache.kv_heads = OneOf({1, 1, 2});
    cache.head_dim = OneOf({64, 64, 64, 128, listed_ ? 64u : 256u});
  }
  cache.q_heads = cache.kv_heads * OneOf({1, 2, 4});
  const uint32_t longest =
      long_ ? OneOf({8'192, 16'384, 32'768, 32'768}) : 1u << Below(rows_ > 8 ? 8 : 12);
  cache.shape.page_size = long_ ? OneOf({16, 64, longest}) : OneOf({1, 16, 64, longest});
  const uint32_t pages = (longest - 1) / cache.shape.page_size + 1;
  cache.length_max = pages * cache.shape.page_size - Below(cache.shape.page_size);
  program_.length_max = std::max(program_.length_max, cache.length_max);
  const bool paged = cache.shape.page_size != longest || Sometimes(2);
  cache.shape.pages = paged ? pages + Below(5) : sequences;
  if (paged) {
    cache.table_stride = pages + (Sometimes(3) ? 3 : 0);
    cache.table = IndexTable(kInt32, sequences * cache.table_stride, cache.shape.pages);
  }
  const Dtype dtype = !listed_ && Sometimes(3) ? kFp8E4m3 : kBf16;
  if (dtype == kFp8E4m3) {
    cache.shape.dtype = dtype;
    cache.shape.k_scale = 0.01f, cache.shape.v_scale = 0.02f;
  }
  if (Sometimes(2)) {  // heads before tokens in a page
    cache.shape.token_stride = cache.head_dim;
    cache.shape.head_stride = cache.shape.page_size * cache.head_dim;
    cache.shape.page_stride = cache.kv_heads * cache.shape.head_stride;
  }
  const uint64_t elements = uint64_t{cache.tokens()} * cache.kv_heads * cache.head_dim;
  for (At* at : {&cache.k, &cache.v}) {
    *at = {AddPiece(Place::kState, elements * BytesOf(dtype), dtype)};
    Fill(*at, Numbers(dtype, elements, -1, 1));
  }
  return cache;
}

At Author::MakeSlots(const Cache& cache, Dtype dtype) {
  std::vector<int64_t> slots(rows_, -1);
  const uint32_t tokens = cache.tokens();
  const uint32_t first = Below(tokens), rows = std::min(rows_, tokens);
  for (uint32_t row = 0; row < rows; ++row)
    slots[row] = Sometimes(6) ? -1 : int64_t{(first + row) % tokens};
  // One that is out of range is taken for the last, which must be nobody else's.
  const int64_t last = tokens - 1;
  if (Sometimes(8) && std::count(slots.begin(), slots.end(), last) == 0)
    slots[Below(rows_)] = INT32_MAX;
  return Table(StateOrBinding(), dtype, rows_, [&](uint32_t row) { return slots[row]; });
}

Matrix Author::AppendTo(const Cache& cache, const Matrix& x) {
  const uint32_t dim = cache.head_dim, q = cache.q_heads * dim, kv = cache.kv_heads * dim;
  const Matrix heads = Product(x, q + 2 * kv);
  const uint32_t rotary = Sometimes(3) ? dim / 2 : dim, positions_max = 1 + Below(300);
  RopeAppendOp op{.rows = rows_,
                  .q_heads = cache.q_heads,
                  .kv_heads = cache.kv_heads,
                  .head_dim = dim,
                  .rotary_dim = rotary,
                  .positions_max = positions_max,
                  .q_stride = heads.stride,
                  .k_stride = heads.stride,
                  .v_stride = heads.stride,
                  .dtype = heads.dtype,
                  .position_dtype = IndexDtype(),
                  .slot_dtype = IndexDtype(),
                  .interleaved = Sometimes(2)};
  const At positions = IndexTable(op.position_dtype, rows_, positions_max);
  const At slots = MakeSlots(cache, op.slot_dtype);
  const At cos_sin = Vector(positions_max * rotary, kFp32);
  Add("rope_append", {heads.at, cache.k, cache.v}, {heads.at},
      [=](Queue& queue, const Memory& memory) {
        RopeAppendOp rope = op;
        rope.q = Of(memory, heads.at), rope.k = Of(memory, heads.Column(q));
        rope.v = Of(memory, heads.Column(q + kv)), rope.positions = Of(memory, positions);
        rope.slots = Of(memory, slots), rope.cos_sin = Of(memory, cos_sin);
        rope.cache = cache.In(memory);
        return queue.RopeAppend(rope);
      });
  return heads;
}

void Author::Append() {
  const Matrix x = Any();
  if (x.dtype != kBf16) return;
  Keep(AppendTo(MakeCache(rows_), x));
}

void Author::Attend() {
  const Matrix x = Any();
  if (x.dtype != kBf16) return;
  const bool prefill = !listed_ && Sometimes(3);
  const uint32_t sequences = prefill ? 1 + Below(std::min(rows_, 4u)) : rows_;
  const Cache cache = MakeCache(sequences);
  const Matrix q = AppendTo(cache, x);
  const bool full = long_ || Sometimes(3);
  const At lengths = full ? Table(StateOrBinding(), kInt32, sequences,
                                  [&](uint32_t) { return int64_t{cache.length_max}; })
                          : IndexTable(kInt32, sequences, cache.length_max + 1);
  const Matrix out = Out(cache.q_heads * cache.head_dim, kBf16, {q.at});
  AttentionDecodeOp op{.rows = rows_,
                       .q_heads = cache.q_heads,
                       .kv_heads = cache.kv_heads,
                       .head_dim = cache.head_dim,
                       .length_max = cache.length_max,
                       .q_stride = q.stride,
                       .out_stride = out.stride,
                       .table_stride = cache.table_stride,
                       .scale = 1 / std::sqrt(float(cache.head_dim)),
                       .soft_cap = Sometimes(4) ? 20.f : 0,
                       .window = Sometimes(4) ? 1 + Below(100) : 0};
  if (prefill) {
    AddPrefill(op, cache, q, lengths, out, sequences);
  } else {
    Add("attention_decode", {out.at}, {q.at, cache.k}, [=](Queue& queue, const Memory& memory) {
      AttentionDecodeOp decode = op;
      decode.q = Of(memory, q.at), decode.lengths = Of(memory, lengths);
      decode.out = Of(memory, out.at), decode.cache = cache.In(memory);
      decode.page_table = Of(memory, cache.table);
      return queue.AttentionDecode(decode);
    });
  }
  Keep(out);
}

void Author::AddPrefill(const AttentionDecodeOp& op, const Cache& cache, const Matrix& q,
                        const At& lengths, const Matrix& out, uint32_t sequences) {
  std::vector<int64_t> starts(sequences + 1, 0);
  for (uint32_t i = 1; i < sequences; ++i) starts[i] = Below(rows_ + 1);
  starts.back() = rows_;
  std::sort(starts.begin(), starts.end());
  const At starts_at =
      Table(StateOrBinding(), kInt32, sequences + 1, [&](uint32_t i) { return starts[i]; });
  Add("attention_prefill", {out.at}, {q.at, cache.k}, [=](Queue& queue, const Memory& memory) {
    return queue.AttentionPrefill({.tokens = op.rows,
                                   .sequences = sequences,
                                   .q_heads = op.q_heads,
                                   .kv_heads = op.kv_heads,
                                   .head_dim = op.head_dim,
                                   .length_max = op.length_max,
                                   .q = Of(memory, q.at),
                                   .query_starts = Of(memory, starts_at),
                                   .lengths = Of(memory, lengths),
                                   .out = Of(memory, out.at),
                                   .cache = cache.In(memory),
                                   .page_table = Of(memory, cache.table),
                                   .q_stride = op.q_stride,
                                   .out_stride = op.out_stride,
                                   .table_stride = op.table_stride,
                                   .scale = op.scale,
                                   .soft_cap = op.soft_cap,
                                   .window = op.window});
  });
}

}  // namespace concert::test
