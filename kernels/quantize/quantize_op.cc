#include "kernels/quantize/quantize_op.h"

#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor, const concert_quantize_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckUnused(descriptor, body.reserved0 | body.reserved1 |
                                                       body.reserved2 | AnyOf(body.reserved3) |
                                                       ScalesOf({body.x, body.out, body.scales})));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  return CheckRowsAndColumns(body.rows, body.columns);
}

policies::Work WorkOf(const QuantizeArgs& args) {
  const uint64_t elements = uint64_t{args.rows} * args.columns;
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = args.dtype;
  work.m = args.rows;
  work.n = args.columns;
  work.flops = 2 * elements;  // a comparison and a division
  work.hbm_bytes = elements * (DtypeBytes(args.dtype) + DtypeBytes(Dtype::kFp8E4m3)) +
                   uint64_t{args.rows} * sizeof(float);
  return work;
}

}  // namespace

Failure AdmitQuantize(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_quantize_body& body = descriptor.body.quantize;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  const auto dtype = static_cast<Dtype>(body.dtype);
  OperandResolver resolver(context, op);
  ByteRange x, out, scales;
  CONCERT_RETURN_IF_FAILED(ResolveRows(
      resolver, {CONCERT_FIELD_INPUT, CONCERT_FIELD_X_STRIDE}, body.x,
      {.rows = body.rows, .columns = body.columns, .row_stride = body.x_stride}, dtype, x));
  CONCERT_RETURN_IF_FAILED(
      ResolveRows(resolver, {CONCERT_FIELD_OUT, CONCERT_FIELD_OUT_STRIDE}, body.out,
                  {.rows = body.rows, .columns = body.columns, .row_stride = body.out_stride},
                  Dtype::kFp8E4m3, out));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_SCALES, body.scales, uint64_t{body.rows},
                                            sizeof(float), scales));
  op.kind = CONCERT_OP_QUANTIZE;
  op.quantize = {
      .rows = body.rows,
      .columns = body.columns,
      .x = x.begin,
      .out = out.begin,
      .scales = scales.begin,
      .x_stride = body.x_stride,
      .out_stride = body.out_stride,
      .dtype = dtype,
  };
  op.work = WorkOf(op.quantize);
  return CheckOverlaps(AccessesOfQuantize(op));
}

Accesses AccessesOfQuantize(const Op& op) {
  const QuantizeArgs& args = op.quantize;
  const uint64_t element = DtypeBytes(args.dtype);
  Accesses accesses;
  accesses.Add(op, CONCERT_FIELD_INPUT, AccessMode::kRead)
      .Set(args.x, args.columns * element, args.rows, args.x_stride * element);
  accesses.Add(op, CONCERT_FIELD_OUT, AccessMode::kWrite)
      .Set(args.out, args.columns, args.rows, args.out_stride);
  accesses.Add(op, CONCERT_FIELD_SCALES, AccessMode::kWrite)
      .Set(args.scales, uint64_t{args.rows} * sizeof(float));
  return accesses;
}

}  // namespace concert::kernels
