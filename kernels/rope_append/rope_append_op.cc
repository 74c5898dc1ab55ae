#include "kernels/rope_append/rope_append_op.h"

#include "kernels/kv_cache_operand.h"
#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor, const concert_rope_append_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckUnused(
      descriptor,
      body.reserved0 | body.reserved1 |
          ScalesOf({body.q, body.k, body.v, body.positions, body.slots, body.cos_sin})));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  CONCERT_RETURN_IF_FAILED(CheckCacheDtype(body));
  CONCERT_RETURN_IF_FAILED(CheckIndexType(CONCERT_FIELD_POSITION_DTYPE, body.position_dtype));
  CONCERT_RETURN_IF_FAILED(CheckIndexType(CONCERT_FIELD_SLOT_DTYPE, body.slot_dtype));
  CONCERT_RETURN_IF_FAILED(CheckFlags(body.flags, CONCERT_ROPE_INTERLEAVED));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_ROWS, body.rows, 1, kMaxRows));
  CONCERT_RETURN_IF_FAILED(
      CheckRange(CONCERT_FIELD_POSITIONS_MAX, body.positions_max, 1, kMaxRows));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_Q_HEADS, body.q_heads, 1, kMaxHeads));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_KV_HEADS, body.kv_heads, 1, kMaxHeads));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_HEAD_DIM, body.head_dim, 2, kMaxHeadDim));
  CONCERT_RETURN_IF_FAILED(CheckMultiple(CONCERT_FIELD_HEAD_DIM, body.head_dim, 2));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_ROTARY_DIM, body.rotary_dim, 2, body.head_dim));
  return CheckMultiple(CONCERT_FIELD_ROTARY_DIM, body.rotary_dim, 2);
}

// In the order of the body.
Failure ResolveOperands(OperandResolver& resolver, const concert_rope_append_body& body,
                        RopeAppendArgs& args) {
  const auto heads = [&](RowFields fields, const concert_operand& operand, uint64_t count,
                         uint64_t row_stride, Address& address) {
    ByteRange range;
    const Failure failure =
        ResolveRows(resolver, fields, operand,
                    {.rows = body.rows, .columns = count * body.head_dim, .row_stride = row_stride},
                    args.dtype, range);
    address = range.begin;
    return failure;
  };
  const auto numbers = [&](concert_field field, const concert_operand& operand, uint64_t count,
                           uint32_t bytes, Address& address) {
    ByteRange range;
    const Failure failure = resolver.Resolve(field, operand, count, bytes, range);
    address = range.begin;
    return failure;
  };
  CONCERT_RETURN_IF_FAILED(heads({CONCERT_FIELD_Q, CONCERT_FIELD_Q_STRIDE}, body.q, body.q_heads,
                                 body.q_stride, args.q));
  CONCERT_RETURN_IF_FAILED(heads({CONCERT_FIELD_K, CONCERT_FIELD_K_STRIDE}, body.k, body.kv_heads,
                                 body.k_stride, args.k));
  CONCERT_RETURN_IF_FAILED(heads({CONCERT_FIELD_V, CONCERT_FIELD_V_STRIDE}, body.v, body.kv_heads,
                                 body.v_stride, args.v));
  CONCERT_RETURN_IF_FAILED(numbers(CONCERT_FIELD_POSITIONS, body.positions, body.rows,
                                   IndexBytes(args.position_type), args.positions));
  CONCERT_RETURN_IF_FAILED(
      numbers(CONCERT_FIELD_SLOTS, body.slots, body.rows, IndexBytes(args.slot_type), args.slots));
  CONCERT_RETURN_IF_FAILED(numbers(CONCERT_FIELD_COS_SIN, body.cos_sin,
                                   uint64_t{body.positions_max} * body.rotary_dim, sizeof(float),
                                   args.cos_sin));
  return ResolveKvCache(resolver, body.cache, {body.kv_heads, body.head_dim}, CacheDtype(body),
                        args.cache);
}

policies::Work WorkOf(const RopeAppendArgs& args) {
  const uint64_t q = uint64_t{args.q_heads} * args.head_dim;
  const uint64_t kv = 2 * uint64_t{args.kv_heads} * args.head_dim;
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = args.dtype;
  work.m = args.rows;
  work.n = static_cast<uint32_t>(q + kv);
  work.flops = 3 * args.rows * (q + kv / 2);
  work.hbm_bytes =
      args.rows * ((2 * q + kv) * DtypeBytes(args.dtype) + kv * DtypeBytes(args.cache.dtype) +
                   args.rotary_dim * sizeof(float) + IndexBytes(args.position_type) +
                   IndexBytes(args.slot_type));
  return work;
}

}  // namespace

Failure AdmitRopeAppend(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_rope_append_body& body = descriptor.body.rope_append;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  OperandResolver resolver(context, op);
  op.kind = CONCERT_OP_ROPE_APPEND;
  op.rope_append = {
      .rows = body.rows,
      .positions_max = body.positions_max,
      .q_heads = body.q_heads,
      .kv_heads = body.kv_heads,
      .head_dim = body.head_dim,
      .rotary_dim = body.rotary_dim,
      .q_stride = body.q_stride,
      .k_stride = body.k_stride,
      .v_stride = body.v_stride,
      .dtype = static_cast<Dtype>(body.dtype),
      .position_type = static_cast<IndexType>(body.position_dtype),
      .slot_type = static_cast<IndexType>(body.slot_dtype),
      .interleaved = (body.flags & CONCERT_ROPE_INTERLEAVED) != 0,
  };
  CONCERT_RETURN_IF_FAILED(ResolveOperands(resolver, body, op.rope_append));
  op.work = WorkOf(op.rope_append);
  return CheckOverlaps(AccessesOfRopeAppend(op));
}

Accesses AccessesOfRopeAppend(const Op& op) {
  const RopeAppendArgs& args = op.rope_append;
  const uint64_t element = DtypeBytes(args.dtype), head_bytes = args.head_dim * element;
  Accesses accesses;
  const auto heads = [&](concert_field field, AccessMode mode, Address begin, uint32_t count,
                         uint64_t stride) {
    accesses.Add(op, field, mode).Set(begin, count * head_bytes, args.rows, stride * element);
  };
  heads(CONCERT_FIELD_Q, AccessMode::kReadWrite, args.q, args.q_heads, args.q_stride);
  heads(CONCERT_FIELD_K, AccessMode::kRead, args.k, args.kv_heads, args.k_stride);
  heads(CONCERT_FIELD_V, AccessMode::kRead, args.v, args.kv_heads, args.v_stride);
  accesses.Add(op, CONCERT_FIELD_POSITIONS, AccessMode::kRead)
      .Set(args.positions, uint64_t{args.rows} * IndexBytes(args.position_type));
  accesses.Add(op, CONCERT_FIELD_SLOTS, AccessMode::kRead)
      .Set(args.slots, uint64_t{args.rows} * IndexBytes(args.slot_type));
  accesses.Add(op, CONCERT_FIELD_COS_SIN, AccessMode::kReadEarly)
      .Set(args.cos_sin, uint64_t{args.positions_max} * args.rotary_dim * sizeof(float));
  AddKvCache(accesses, op, args.cache, {args.kv_heads, args.head_dim}, AccessMode::kWrite);
  return accesses;
}

}  // namespace concert::kernels
