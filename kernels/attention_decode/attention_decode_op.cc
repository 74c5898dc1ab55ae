#include "kernels/attention_decode/attention_decode_op.h"

#include <algorithm>
#include <limits>

#include "kernels/kv_cache_operand.h"
#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

constexpr uint64_t kMaxSequences = 1 << 16;
constexpr uint32_t kUnitElements = 8;  // 16 bytes, which the kernel reads at a time
// Tokens that are worth a block of their own, to the cost model.
constexpr uint32_t kBlockTokens = 512;

using AttentionBody = concert_attention_decode_body;

Failure CheckScalars(const concert_descriptor& descriptor, const AttentionBody& body) {
  uint64_t unused = body.reserved0 | AnyOf(body.reserved1) | AnyOf(body.reserved2);
  unused |= ScalesOf({body.q, body.page_table, body.lengths, body.out, body.cache.k, body.cache.v});
  CONCERT_RETURN_IF_FAILED(CheckUnused(descriptor, unused));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_BF16));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_ROWS, body.rows, 1, kMaxSequences));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_KV_HEADS, body.kv_heads, 1, kMaxHeads));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_Q_HEADS, body.q_heads, body.kv_heads,
                                      uint64_t{kMaxHeadGroup} * body.kv_heads));
  CONCERT_RETURN_IF_FAILED(CheckMultiple(CONCERT_FIELD_Q_HEADS, body.q_heads, body.kv_heads));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_HEAD_DIM, body.head_dim, 64, 128));
  return CheckMultiple(CONCERT_FIELD_HEAD_DIM, body.head_dim, 64);
}

// That strides let units be read whole, and that a row's tokens have pages.
Failure CheckLayout(const AttentionBody& body) {
  const auto units = [](concert_field field, uint64_t stride) {
    return CheckMultiple(field, stride, kUnitElements);
  };
  CONCERT_RETURN_IF_FAILED(units(CONCERT_FIELD_Q_STRIDE, body.q_stride));
  CONCERT_RETURN_IF_FAILED(units(CONCERT_FIELD_PAGE_STRIDE, body.cache.page_stride));
  CONCERT_RETURN_IF_FAILED(units(CONCERT_FIELD_TOKEN_STRIDE, body.cache.token_stride));
  CONCERT_RETURN_IF_FAILED(units(CONCERT_FIELD_HEAD_STRIDE, body.cache.head_stride));
  const bool paged = body.page_table.buffer != 0;
  if (!paged) {
    CONCERT_RETURN_IF_FAILED(
        CheckRange(CONCERT_FIELD_PAGES, body.cache.pages, body.rows, kMaxPages));
  }
  const uint64_t pages_of_row = paged ? body.table_stride : 1;
  return CheckRange(CONCERT_FIELD_LENGTH_MAX, body.length_max, 1,
                    std::min(kMaxPageSize, pages_of_row * body.cache.page_size));
}

// Elements of the page table that lengths up to length_max may need.
uint64_t TableElements(const AttentionDecodeArgs& args) {
  const uint64_t pages = (uint64_t{args.length_max} - 1) / args.cache.page_size + 1;
  return uint64_t{args.rows - 1} * args.table_stride + pages;
}

Failure ResolveOperands(OperandResolver& resolver, const AttentionBody& body,
                        AttentionDecodeArgs& args) {
  const uint64_t columns = uint64_t{args.q_heads} * args.head_dim;
  const RowMatrix q{.rows = args.rows, .columns = columns, .row_stride = args.q_stride};
  const RowMatrix out{.rows = args.rows, .columns = columns, .row_stride = args.out_stride};
  ByteRange q_range, table, lengths, out_range;
  CONCERT_RETURN_IF_FAILED(ResolveRows(resolver, {CONCERT_FIELD_Q, CONCERT_FIELD_Q_STRIDE}, body.q,
                                       q, Dtype::kBf16, q_range, kUnitElements));
  if (body.page_table.buffer != 0) {
    CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_PAGE_TABLE, body.page_table,
                                              TableElements(args), sizeof(int32_t), table));
  }
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_LENGTHS, body.lengths,
                                            uint64_t{args.rows}, sizeof(int32_t), lengths));
  CONCERT_RETURN_IF_FAILED(ResolveRows(resolver, {CONCERT_FIELD_OUT, CONCERT_FIELD_OUT_STRIDE},
                                       body.out, out, Dtype::kBf16, out_range));
  args.q = q_range.begin;
  args.page_table = table.begin;
  args.lengths = lengths.begin;
  args.out = out_range.begin;
  return ResolveKvCache(resolver, body.cache, {args.kv_heads, args.head_dim}, Dtype::kBf16,
                        args.cache, kUnitElements);
}

// As if all rows were as long as they may be: how long they are only the GPU sees.
policies::Work WorkOf(const AttentionDecodeArgs& args) {
  const uint64_t rows = args.rows, q_columns = uint64_t{args.q_heads} * args.head_dim;
  const uint64_t tokens = rows * args.span_max();
  const uint64_t blocks =
      rows * args.kv_heads * ((args.span_max() + kBlockTokens - 1) / kBlockTokens);
  policies::Work work;
  work.m = static_cast<uint32_t>(std::min<uint64_t>(blocks, std::numeric_limits<uint32_t>::max()));
  work.n = args.head_dim;
  work.flops = SaturatingMultiply(4 * tokens, q_columns);
  work.hbm_bytes =
      SaturatingAdd(SaturatingMultiply(tokens, uint64_t{args.kv_heads} * args.head_dim * 4),
                    rows * (q_columns * 4 + sizeof(int32_t)));
  return work;
}

}  // namespace

Failure AdmitAttentionDecode(const concert_descriptor& descriptor, const AdmitContext& context,
                             Op& op) {
  const AttentionBody& body = descriptor.body.attention_decode;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  CONCERT_RETURN_IF_FAILED(CheckLayout(body));
  OperandResolver resolver(context, op);
  op.kind = CONCERT_OP_ATTENTION_DECODE;
  op.attention_decode = {
      .rows = body.rows,
      .length_max = body.length_max,
      .q_heads = body.q_heads,
      .kv_heads = body.kv_heads,
      .head_dim = body.head_dim,
      .cache = {.page_size = body.cache.page_size},
      .q_stride = body.q_stride,
      .out_stride = body.out_stride,
      .table_stride = body.table_stride,
      .window = body.window,
      .scale = body.scale,
      .soft_cap = body.soft_cap,
  };
  CONCERT_RETURN_IF_FAILED(ResolveOperands(resolver, body, op.attention_decode));
  op.work = WorkOf(op.attention_decode);
  return CheckOverlaps(AccessesOfAttentionDecode(op));
}

Accesses AccessesOfAttentionDecode(const Op& op) {
  const AttentionDecodeArgs& args = op.attention_decode;
  const uint64_t element = DtypeBytes(Dtype::kBf16);
  const uint64_t row_bytes = args.q_heads * args.head_dim * element;
  Accesses accesses;
  accesses.Add(op, CONCERT_FIELD_Q, AccessMode::kRead)
      .Set(args.q, row_bytes, args.rows, args.q_stride * element);
  if (args.page_table != 0) {
    accesses.Add(op, CONCERT_FIELD_PAGE_TABLE, AccessMode::kRead)
        .Set(args.page_table, TableElements(args) * sizeof(int32_t));
  }
  accesses.Add(op, CONCERT_FIELD_LENGTHS, AccessMode::kRead)
      .Set(args.lengths, args.rows * sizeof(int32_t));
  accesses.Add(op, CONCERT_FIELD_OUT, AccessMode::kWrite)
      .Set(args.out, row_bytes, args.rows, args.out_stride * element);
  AddKvCache(accesses, op, args.cache, {args.kv_heads, args.head_dim}, Dtype::kBf16,
             AccessMode::kRead);
  return accesses;
}

}  // namespace concert::kernels
