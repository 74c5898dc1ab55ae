#include "kernels/rms_norm/rms_norm_op.h"

#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor, const concert_rms_norm_body& body) {
  CONCERT_RETURN_IF_FAILED(
      CheckUnused(descriptor, body.reserved0 | AnyOf(body.reserved1) |
                                  ScalesOf({body.x, body.residual, body.weight, body.out})));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  CONCERT_RETURN_IF_FAILED(CheckFlags(body.flags, CONCERT_RMS_NORM_CAST_FIRST));
  return CheckRowsAndColumns(body.rows, body.columns);
}

struct NormRanges {
  ByteRange x, residual, weight, out;
};

Failure ResolveOperands(OperandResolver& resolver, const concert_rms_norm_body& body,
                        NormRanges& ranges) {
  const Dtype dtype = static_cast<Dtype>(body.dtype);
  const auto matrix = [&](concert_field field, const concert_operand& operand, concert_field stride,
                          uint64_t row_stride, ByteRange& range) {
    return ResolveRows(resolver, {field, stride}, operand,
                       {.rows = body.rows, .columns = body.columns, .row_stride = row_stride},
                       dtype, range);
  };
  CONCERT_RETURN_IF_FAILED(
      matrix(CONCERT_FIELD_INPUT, body.x, CONCERT_FIELD_X_STRIDE, body.x_stride, ranges.x));
  CONCERT_RETURN_IF_FAILED(
      matrix(CONCERT_FIELD_OUT, body.out, CONCERT_FIELD_OUT_STRIDE, body.out_stride, ranges.out));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(
      CONCERT_FIELD_WEIGHT, body.weight, uint64_t{body.columns}, DtypeBytes(dtype), ranges.weight));
  if (body.residual.buffer == 0) return {};
  return matrix(CONCERT_FIELD_RESIDUAL, body.residual, CONCERT_FIELD_RESIDUAL_STRIDE,
                body.residual_stride, ranges.residual);
}

Failure CheckOverlap(const concert_rms_norm_body& body, const NormRanges& ranges) {
  const auto overlap = [](concert_field output, concert_field input) {
    return InvalidArgument(CONCERT_MESSAGE_OVERLAP, output, input);
  };
  const bool in_place = ranges.out == ranges.x && body.out_stride == body.x_stride;
  if (ranges.out.Overlaps(ranges.x) && !in_place)
    return overlap(CONCERT_FIELD_OUT, CONCERT_FIELD_INPUT);
  if (ranges.out.Overlaps(ranges.weight)) return overlap(CONCERT_FIELD_OUT, CONCERT_FIELD_WEIGHT);
  if (ranges.out.Overlaps(ranges.residual))
    return overlap(CONCERT_FIELD_OUT, CONCERT_FIELD_RESIDUAL);
  if (ranges.residual.Overlaps(ranges.x))
    return overlap(CONCERT_FIELD_RESIDUAL, CONCERT_FIELD_INPUT);
  if (ranges.residual.Overlaps(ranges.weight))
    return overlap(CONCERT_FIELD_RESIDUAL, CONCERT_FIELD_WEIGHT);
  return {};
}

policies::Work WorkOf(const concert_rms_norm_body& body) {
  const uint64_t elements = uint64_t{body.rows} * body.columns;
  const uint64_t moved = elements * (body.residual.buffer != 0 ? 4 : 2) + body.columns;
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = static_cast<Dtype>(body.dtype);
  work.m = body.rows;
  work.n = body.columns;
  work.flops = 4 * elements;  // square and add; two multiplications
  work.hbm_bytes = SaturatingMultiply(moved, DtypeBytes(work.dtype));
  return work;
}

}  // namespace

Failure AdmitRmsNorm(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_rms_norm_body& body = descriptor.body.rms_norm;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  OperandResolver resolver(context, op);
  NormRanges ranges;
  CONCERT_RETURN_IF_FAILED(ResolveOperands(resolver, body, ranges));
  CONCERT_RETURN_IF_FAILED(CheckOverlap(body, ranges));
  op.kind = CONCERT_OP_RMS_NORM;
  op.work = WorkOf(body);
  op.rms_norm = {
      .rows = body.rows,
      .columns = body.columns,
      .x = ranges.x.begin,
      .residual = ranges.residual.begin,
      .weight = ranges.weight.begin,
      .out = ranges.out.begin,
      .x_stride = body.x_stride,
      .residual_stride = body.residual_stride,
      .out_stride = body.out_stride,
      .epsilon = body.epsilon,
      .dtype = static_cast<Dtype>(body.dtype),
      .cast_first = (body.flags & CONCERT_RMS_NORM_CAST_FIRST) != 0,
  };
  return {};
}

Accesses AccessesOfRmsNorm(const Op& op) {
  const RmsNormArgs& args = op.rms_norm;
  const uint64_t element = DtypeBytes(args.dtype);
  Accesses accesses;
  const auto rows = [&](concert_field field, AccessMode mode, Address begin, uint64_t stride) {
    accesses.Add(op, field, mode).Set(begin, args.columns * element, args.rows, stride * element);
  };
  const bool in_place = args.out == args.x;
  rows(CONCERT_FIELD_INPUT, AccessMode::kRead, args.x, args.x_stride);
  rows(CONCERT_FIELD_OUT, in_place ? AccessMode::kReadWrite : AccessMode::kWrite, args.out,
       args.out_stride);
  accesses.Add(op, CONCERT_FIELD_WEIGHT, AccessMode::kReadEarly)
      .Set(args.weight, args.columns * element);
  if (args.residual != 0) {
    rows(CONCERT_FIELD_RESIDUAL, AccessMode::kReadWrite, args.residual, args.residual_stride);
  }
  return accesses;
}

}  // namespace concert::kernels
