#include "kernels/layer_norm/layer_norm_op.h"

#include "kernels/norm/norm_operands.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor, const concert_layer_norm_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckUnused(
      descriptor, AnyOf(body.reserved0) | AnyOf(body.reserved1) |
                      ScalesOf({body.x, body.residual, body.weight, body.bias, body.out})));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  return CheckRowsAndColumns(body.rows, body.columns);
}

}  // namespace

Failure AdmitLayerNorm(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_layer_norm_body& body = descriptor.body.layer_norm;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  OperandResolver resolver(context, op);
  LayerNormArgs& args = op.layer_norm = {};
  CONCERT_RETURN_IF_FAILED(ResolveNorm(resolver, body, args));
  if (body.bias.buffer != 0) {
    CONCERT_RETURN_IF_FAILED(
        ResolveRowVector(resolver, body, CONCERT_FIELD_BIAS, body.bias, args.bias));
  }
  args.epsilon = body.epsilon;
  op.kind = CONCERT_OP_LAYER_NORM;
  // Two sums, distance, square; two multiplications and an addition.
  op.work = WorkOfNorm(args, /*flops_per_element=*/7, /*vectors=*/args.bias != 0 ? 2 : 1);
  return CheckOverlaps(AccessesOfLayerNorm(op));
}

Accesses AccessesOfLayerNorm(const Op& op) {
  const LayerNormArgs& args = op.layer_norm;
  Accesses accesses;
  AddNorm(accesses, op, args);
  if (args.bias != 0) {
    accesses.Add(op, CONCERT_FIELD_BIAS, AccessMode::kReadEarly)
        .Set(args.bias, uint64_t{args.columns} * DtypeBytes(args.dtype));
  }
  return accesses;
}

}  // namespace concert::kernels
