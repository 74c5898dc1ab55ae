#include "kernels/elementwise/elementwise_op.h"

#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor, const concert_elementwise_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckUnused(descriptor, body.reserved0 | body.reserved1 |
                                                       AnyOf(body.reserved2) |
                                                       ScalesOf({body.x, body.y, body.out})));
  CONCERT_RETURN_IF_FAILED(
      CheckRange(CONCERT_FIELD_FUNCTION, body.function, CONCERT_ABI_ADD, CONCERT_ABI_CAST));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  CONCERT_RETURN_IF_FAILED(
      CheckRange(CONCERT_FIELD_OUT_DTYPE, body.out_dtype, CONCERT_ABI_BF16, CONCERT_ABI_FP32));
  return CheckRowsAndColumns(body.rows, body.columns);
}

// How many rows y has.
uint64_t RowsOfY(const ElementwiseArgs& args) { return args.y_stride == 0 ? 1 : args.rows; }

Failure ResolveOperands(OperandResolver& resolver, const concert_elementwise_body& body,
                        ElementwiseArgs& args) {
  const auto rows = [&](RowFields fields, const concert_operand& operand, const RowMatrix& matrix,
                        Dtype dtype, Address& address) {
    ByteRange range;
    const Failure failure = ResolveRows(resolver, fields, operand, matrix, dtype, range);
    address = range.begin;
    return failure;
  };
  const uint64_t columns = args.columns;
  CONCERT_RETURN_IF_FAILED(rows(
      {CONCERT_FIELD_INPUT, CONCERT_FIELD_X_STRIDE}, body.x,
      {.rows = args.rows, .columns = columns, .row_stride = args.x_stride}, args.dtype, args.x));
  if (args.function != ElementFunction::kCast) {
    const uint64_t stride = args.y_stride == 0 ? columns : args.y_stride;
    CONCERT_RETURN_IF_FAILED(rows({CONCERT_FIELD_Y, CONCERT_FIELD_Y_STRIDE}, body.y,
                                  {.rows = RowsOfY(args), .columns = columns, .row_stride = stride},
                                  args.dtype, args.y));
  }
  return rows({CONCERT_FIELD_OUT, CONCERT_FIELD_OUT_STRIDE}, body.out,
              {.rows = args.rows, .columns = columns, .row_stride = args.out_stride},
              args.out_dtype, args.out);
}

policies::Work WorkOf(const ElementwiseArgs& args) {
  const uint64_t elements = uint64_t{args.rows} * args.columns;
  const uint64_t y = args.y == 0 ? 0 : RowsOfY(args) * args.columns;
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = args.dtype;
  work.m = args.rows;
  work.n = args.columns;
  work.flops = elements;
  work.hbm_bytes = (elements + y) * DtypeBytes(args.dtype) + elements * DtypeBytes(args.out_dtype);
  return work;
}

}  // namespace

Failure AdmitElementwise(const concert_descriptor& descriptor, const AdmitContext& context,
                         Op& op) {
  const concert_elementwise_body& body = descriptor.body.elementwise;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  OperandResolver resolver(context, op);
  op.kind = CONCERT_OP_ELEMENTWISE;
  op.elementwise = {
      .rows = body.rows,
      .columns = body.columns,
      .x_stride = body.x_stride,
      .y_stride = body.y_stride,
      .out_stride = body.out_stride,
      .function = static_cast<ElementFunction>(body.function),
      .dtype = static_cast<Dtype>(body.dtype),
      .out_dtype = static_cast<Dtype>(body.out_dtype),
  };
  CONCERT_RETURN_IF_FAILED(ResolveOperands(resolver, body, op.elementwise));
  op.work = WorkOf(op.elementwise);
  return CheckOverlaps(AccessesOfElementwise(op));
}

Accesses AccessesOfElementwise(const Op& op) {
  const ElementwiseArgs& args = op.elementwise;
  Accesses accesses;
  const auto rows = [&](concert_field field, AccessMode mode, Address begin, uint64_t count,
                        uint64_t stride, Dtype dtype) {
    const uint64_t element = DtypeBytes(dtype);
    accesses.Add(op, field, mode).Set(begin, args.columns * element, count, stride * element);
  };
  // Each element of out then lies where one lies that it alone is made of.
  const bool in_place = DtypeBytes(args.dtype) == DtypeBytes(args.out_dtype) &&
                        (args.out == args.x || (args.out == args.y && RowsOfY(args) == args.rows));
  rows(CONCERT_FIELD_INPUT, AccessMode::kRead, args.x, args.rows, args.x_stride, args.dtype);
  if (args.y != 0) {
    rows(CONCERT_FIELD_Y, AccessMode::kRead, args.y, RowsOfY(args), args.y_stride, args.dtype);
  }
  rows(CONCERT_FIELD_OUT, in_place ? AccessMode::kReadWrite : AccessMode::kWrite, args.out,
       args.rows, args.out_stride, args.out_dtype);
  return accesses;
}

}  // namespace concert::kernels
