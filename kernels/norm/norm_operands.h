// What admission of norms has in common. `Body` and `Args` are those of a norm of rows of x, with
// weight, residual (or none) and out.
#ifndef CONCERT_KERNELS_NORM_NORM_OPERANDS_H_
#define CONCERT_KERNELS_NORM_NORM_OPERANDS_H_

#include <cstdint>

#include "kernels/access.h"
#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {

// A vector of as many elements as a row has.
template <typename Body>
Failure ResolveRowVector(OperandResolver& resolver, const Body& body, concert_field field,
                         const concert_operand& operand, Address& address) {
  ByteRange range;
  const Failure failure = resolver.Resolve(field, operand, uint64_t{body.columns},
                                           DtypeBytes(static_cast<Dtype>(body.dtype)), range);
  address = range.begin;
  return failure;
}

// x, out, weight and the residual, in this order; rows, columns, strides and dtype go with them.
template <typename Body, typename Args>
Failure ResolveNorm(OperandResolver& resolver, const Body& body, Args& args) {
  const Dtype dtype = static_cast<Dtype>(body.dtype);
  const auto rows = [&](RowFields fields, const concert_operand& operand, uint64_t row_stride,
                        Address& address) {
    ByteRange range;
    const RowMatrix matrix{.rows = body.rows, .columns = body.columns, .row_stride = row_stride};
    const Failure failure = ResolveRows(resolver, fields, operand, matrix, dtype, range);
    address = range.begin;
    return failure;
  };
  args.rows = body.rows, args.columns = body.columns;
  args.x_stride = body.x_stride, args.out_stride = body.out_stride;
  args.dtype = dtype;
  args.residual = 0, args.residual_stride = body.residual_stride;
  CONCERT_RETURN_IF_FAILED(
      rows({CONCERT_FIELD_INPUT, CONCERT_FIELD_X_STRIDE}, body.x, body.x_stride, args.x));
  CONCERT_RETURN_IF_FAILED(
      rows({CONCERT_FIELD_OUT, CONCERT_FIELD_OUT_STRIDE}, body.out, body.out_stride, args.out));
  CONCERT_RETURN_IF_FAILED(
      ResolveRowVector(resolver, body, CONCERT_FIELD_WEIGHT, body.weight, args.weight));
  if (body.residual.buffer == 0) return {};
  return rows({CONCERT_FIELD_RESIDUAL, CONCERT_FIELD_RESIDUAL_STRIDE}, body.residual,
              body.residual_stride, args.residual);
}

// The same operands' accesses.
template <typename Args>
void AddNorm(Accesses& accesses, const Op& op, const Args& args) {
  const uint64_t element = DtypeBytes(args.dtype), row_bytes = args.columns * element;
  const auto rows = [&](concert_field field, AccessMode mode, Address begin, uint64_t stride) {
    accesses.Add(op, field, mode).Set(begin, row_bytes, args.rows, stride * element);
  };
  const bool in_place = args.out == args.x;
  rows(CONCERT_FIELD_INPUT, AccessMode::kRead, args.x, args.x_stride);
  rows(CONCERT_FIELD_OUT, in_place ? AccessMode::kReadWrite : AccessMode::kWrite, args.out,
       args.out_stride);
  accesses.Add(op, CONCERT_FIELD_WEIGHT, AccessMode::kReadEarly).Set(args.weight, row_bytes);
  if (args.residual != 0) {
    rows(CONCERT_FIELD_RESIDUAL, AccessMode::kReadWrite, args.residual, args.residual_stride);
  }
}

// `vectors`: of a row's length, that all rows share.
template <typename Args>
policies::Work WorkOfNorm(const Args& args, uint64_t flops_per_element, uint64_t vectors) {
  const uint64_t elements = uint64_t{args.rows} * args.columns;
  const uint64_t moved = elements * (args.residual != 0 ? 4 : 2) + vectors * args.columns;
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = args.dtype;
  work.m = args.rows;
  work.n = args.columns;
  work.flops = flops_per_element * elements;
  work.hbm_bytes = SaturatingMultiply(moved, DtypeBytes(work.dtype));
  return work;
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_NORM_NORM_OPERANDS_H_
