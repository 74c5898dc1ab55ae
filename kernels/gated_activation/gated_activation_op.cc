#include "kernels/gated_activation/gated_activation_op.h"

#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor,
                     const concert_gated_activation_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckUnused(
      descriptor, body.reserved0 | AnyOf(body.reserved1) | ScalesOf({body.x, body.out})));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_ACTIVATION, body.activation,
                                      CONCERT_ABI_ACT_GELU, CONCERT_ABI_ACT_SILU));
  CONCERT_RETURN_IF_FAILED(CheckFlags(body.flags, CONCERT_GATED_INTERLEAVED));
  return CheckRowsAndColumns(body.rows, body.columns);
}

policies::Work WorkOf(const concert_gated_activation_body& body) {
  const uint64_t elements = uint64_t{body.rows} * body.columns;
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = static_cast<Dtype>(body.dtype);
  work.m = body.rows;
  work.n = body.columns;
  work.flops = 4 * elements;  // exponential, add, divide, multiply
  work.hbm_bytes = SaturatingMultiply(3 * elements, DtypeBytes(work.dtype));
  return work;
}

}  // namespace

Failure AdmitGatedActivation(const concert_descriptor& descriptor, const AdmitContext& context,
                             Op& op) {
  const concert_gated_activation_body& body = descriptor.body.gated_activation;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  const Dtype dtype = static_cast<Dtype>(body.dtype);
  OperandResolver resolver(context, op);
  ByteRange x, out;
  CONCERT_RETURN_IF_FAILED(ResolveRows(
      resolver, {CONCERT_FIELD_INPUT, CONCERT_FIELD_X_STRIDE}, body.x,
      {.rows = body.rows, .columns = 2 * uint64_t{body.columns}, .row_stride = body.x_stride},
      dtype, x));
  CONCERT_RETURN_IF_FAILED(ResolveRows(
      resolver, {CONCERT_FIELD_OUT, CONCERT_FIELD_OUT_STRIDE}, body.out,
      {.rows = body.rows, .columns = body.columns, .row_stride = body.out_stride}, dtype, out));
  op.kind = CONCERT_OP_GATED_ACTIVATION;
  op.work = WorkOf(body);
  op.gated_activation = {
      .rows = body.rows,
      .columns = body.columns,
      .x = x.begin,
      .out = out.begin,
      .x_stride = body.x_stride,
      .out_stride = body.out_stride,
      .dtype = dtype,
      .activation = static_cast<Activation>(body.activation),
      .interleaved = (body.flags & CONCERT_GATED_INTERLEAVED) != 0,
  };
  return CheckOverlaps(AccessesOfGatedActivation(op));
}

Accesses AccessesOfGatedActivation(const Op& op) {
  const GatedActivationArgs& args = op.gated_activation;
  const uint64_t element = DtypeBytes(args.dtype), row_bytes = args.columns * element;
  Accesses accesses;
  accesses.Add(op, CONCERT_FIELD_INPUT, AccessMode::kRead)
      .Set(args.x, 2 * row_bytes, args.rows, args.x_stride * element);
  accesses.Add(op, CONCERT_FIELD_OUT, AccessMode::kWrite)
      .Set(args.out, row_bytes, args.rows, args.out_stride * element);
  return accesses;
}

}  // namespace concert::kernels
