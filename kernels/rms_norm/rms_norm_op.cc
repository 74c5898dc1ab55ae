#include "kernels/rms_norm/rms_norm_op.h"

#include "kernels/norm/norm_operands.h"

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

}  // namespace

Failure AdmitRmsNorm(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_rms_norm_body& body = descriptor.body.rms_norm;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  OperandResolver resolver(context, op);
  RmsNormArgs& args = op.rms_norm = {};
  CONCERT_RETURN_IF_FAILED(ResolveNorm(resolver, body, args));
  args.epsilon = body.epsilon;
  args.cast_first = (body.flags & CONCERT_RMS_NORM_CAST_FIRST) != 0;
  op.kind = CONCERT_OP_RMS_NORM;
  // Square and add; two multiplications.
  op.work = WorkOfNorm(args, /*flops_per_element=*/4, /*vectors=*/1);
  return CheckOverlaps(AccessesOfRmsNorm(op));
}

Accesses AccessesOfRmsNorm(const Op& op) {
  Accesses accesses;
  AddNorm(accesses, op, op.rms_norm);
  return accesses;
}

}  // namespace concert::kernels
