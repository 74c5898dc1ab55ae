// What admission of attention over a cache has in common. `Body` is that of a kind whose q and out
// have rows of q_heads heads, and whose cache holds sequences by a page table or a page for each.
#ifndef CONCERT_KERNELS_ATTENTION_ATTENTION_OPERANDS_H_
#define CONCERT_KERNELS_ATTENTION_ATTENTION_OPERANDS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/attention_decode/attention_decode_args.h"
#include "kernels/kv_cache_operand.h"
#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {

inline constexpr uint64_t kMaxSequences = 1 << 16;
inline constexpr uint32_t kUnitElements = 8;  // of q and out: 16 bytes, read at a time

// Of the cache: as many bytes.
template <typename Body>
uint32_t CacheUnit(const Body& body) {
  return 16 / DtypeBytes(CacheDtype(body));
}

template <typename Body>
Failure CheckHeads(const Body& body) {
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_BF16));
  CONCERT_RETURN_IF_FAILED(CheckCacheDtype(body));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_KV_HEADS, body.kv_heads, 1, kMaxHeads));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_Q_HEADS, body.q_heads, body.kv_heads,
                                      uint64_t{kMaxHeadGroup} * body.kv_heads));
  CONCERT_RETURN_IF_FAILED(CheckMultiple(CONCERT_FIELD_Q_HEADS, body.q_heads, body.kv_heads));
  CONCERT_RETURN_IF_FAILED(
      CheckRange(CONCERT_FIELD_HEAD_DIM, body.head_dim, 64, kMaxAttentionHeadDim));
  CONCERT_RETURN_IF_FAILED(CheckMultiple(CONCERT_FIELD_HEAD_DIM, body.head_dim, 64));
  if (body.head_dim <= 128 || body.head_dim == kMaxAttentionHeadDim) return {};
  return InvalidArgument(CONCERT_MESSAGE_FIELD_VALUE, CONCERT_FIELD_HEAD_DIM, body.head_dim,
                         kMaxAttentionHeadDim);
}

// That strides let units be read whole, and that the tokens of each sequence have pages.
template <typename Body>
Failure CheckLayout(const Body& body, uint64_t sequences) {
  const auto units = [&](concert_field field, uint64_t stride) {
    return CheckMultiple(field, stride, CacheUnit(body));
  };
  CONCERT_RETURN_IF_FAILED(CheckMultiple(CONCERT_FIELD_Q_STRIDE, body.q_stride, kUnitElements));
  CONCERT_RETURN_IF_FAILED(units(CONCERT_FIELD_PAGE_STRIDE, body.cache.page_stride));
  CONCERT_RETURN_IF_FAILED(units(CONCERT_FIELD_TOKEN_STRIDE, body.cache.token_stride));
  CONCERT_RETURN_IF_FAILED(units(CONCERT_FIELD_HEAD_STRIDE, body.cache.head_stride));
  const bool paged = body.page_table.buffer != 0;
  if (!paged) {
    CONCERT_RETURN_IF_FAILED(
        CheckRange(CONCERT_FIELD_PAGES, body.cache.pages, sequences, kMaxPages));
  }
  const uint64_t pages_of_sequence = paged ? body.table_stride : 1;
  return CheckRange(CONCERT_FIELD_LENGTH_MAX, body.length_max, 1,
                    std::min(kMaxPageSize, pages_of_sequence * body.cache.page_size));
}

// All but addresses, once the two above have found nothing.
template <typename Body>
AttentionDecodeArgs AttentionArgsOf(const Body& body, uint32_t sequences) {
  return {
      .rows = sequences,
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
}

// Elements of the page table that lengths up to length_max may need.
inline uint64_t TableElements(const AttentionDecodeArgs& args) {
  const uint64_t pages = (uint64_t{args.length_max} - 1) / args.cache.page_size + 1;
  return uint64_t{args.rows - 1} * args.table_stride + pages;
}

// q, the page table, lengths, out and the cache, in this order. `q_rows`: of q and out; `out_unit`:
// elements of out that are written at a time.
template <typename Body>
Failure ResolveAttention(OperandResolver& resolver, const Body& body, uint64_t q_rows,
                         uint32_t out_unit, AttentionDecodeArgs& args) {
  const uint64_t columns = uint64_t{args.q_heads} * args.head_dim;
  const RowMatrix q{.rows = q_rows, .columns = columns, .row_stride = args.q_stride};
  const RowMatrix out{.rows = q_rows, .columns = columns, .row_stride = args.out_stride};
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
                                       body.out, out, Dtype::kBf16, out_range, out_unit));
  args.q = q_range.begin;
  args.page_table = table.begin;
  args.lengths = lengths.begin;
  args.out = out_range.begin;
  CONCERT_RETURN_IF_FAILED(ResolveKvCache(resolver, body.cache, {args.kv_heads, args.head_dim},
                                          CacheDtype(body), args.cache, CacheUnit(body)));
  args.scale *= args.cache.k_scale;
  return {};
}

// Of what ResolveAttention has resolved.
inline void AddAttention(Accesses& accesses, const Op& op, const AttentionDecodeArgs& args,
                         uint64_t q_rows) {
  const uint64_t element = DtypeBytes(Dtype::kBf16);
  const uint64_t row_bytes = args.q_heads * args.head_dim * element;
  accesses.Add(op, CONCERT_FIELD_Q, AccessMode::kRead)
      .Set(args.q, row_bytes, q_rows, args.q_stride * element);
  if (args.page_table != 0) {
    accesses.Add(op, CONCERT_FIELD_PAGE_TABLE, AccessMode::kRead)
        .Set(args.page_table, TableElements(args) * sizeof(int32_t));
  }
  accesses.Add(op, CONCERT_FIELD_LENGTHS, AccessMode::kRead)
      .Set(args.lengths, args.rows * sizeof(int32_t));
  accesses.Add(op, CONCERT_FIELD_OUT, AccessMode::kWrite)
      .Set(args.out, row_bytes, q_rows, args.out_stride * element);
  AddKvCache(accesses, op, args.cache, {args.kv_heads, args.head_dim}, AccessMode::kRead);
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ATTENTION_ATTENTION_OPERANDS_H_
