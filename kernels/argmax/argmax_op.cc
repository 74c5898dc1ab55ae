#include "kernels/argmax/argmax_op.h"

#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor, const concert_argmax_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckUnused(descriptor, body.reserved0 | body.reserved1 |
                                                       AnyOf(body.reserved2) |
                                                       ScalesOf({body.x, body.indices})));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  CONCERT_RETURN_IF_FAILED(CheckIndexType(CONCERT_FIELD_INDEX_DTYPE, body.index_dtype));
  return CheckRowsAndColumns(body.rows, body.columns);
}

policies::Work WorkOf(const ArgmaxArgs& args) {
  const uint64_t elements = uint64_t{args.rows} * args.columns;
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = args.dtype;
  work.m = args.rows;
  work.n = args.columns;
  work.flops = elements;
  work.hbm_bytes =
      elements * DtypeBytes(args.dtype) + uint64_t{args.rows} * IndexBytes(args.index_type);
  return work;
}

}  // namespace

Failure AdmitArgmax(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_argmax_body& body = descriptor.body.argmax;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  const auto dtype = static_cast<Dtype>(body.dtype);
  const auto index_type = static_cast<IndexType>(body.index_dtype);
  OperandResolver resolver(context, op);
  ByteRange x, indices;
  CONCERT_RETURN_IF_FAILED(ResolveRows(
      resolver, {CONCERT_FIELD_INPUT, CONCERT_FIELD_X_STRIDE}, body.x,
      {.rows = body.rows, .columns = body.columns, .row_stride = body.x_stride}, dtype, x));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_INDICES, body.indices,
                                            uint64_t{body.rows}, IndexBytes(index_type), indices));
  op.kind = CONCERT_OP_ARGMAX;
  op.argmax = {
      .rows = body.rows,
      .columns = body.columns,
      .x = x.begin,
      .indices = indices.begin,
      .x_stride = body.x_stride,
      .dtype = dtype,
      .index_type = index_type,
  };
  op.work = WorkOf(op.argmax);
  return CheckOverlaps(AccessesOfArgmax(op));
}

Accesses AccessesOfArgmax(const Op& op) {
  const ArgmaxArgs& args = op.argmax;
  const uint64_t element = DtypeBytes(args.dtype);
  Accesses accesses;
  accesses.Add(op, CONCERT_FIELD_INPUT, AccessMode::kRead)
      .Set(args.x, args.columns * element, args.rows, args.x_stride * element);
  accesses.Add(op, CONCERT_FIELD_INDICES, AccessMode::kWrite)
      .Set(args.indices, uint64_t{args.rows} * IndexBytes(args.index_type));
  return accesses;
}

}  // namespace concert::kernels
