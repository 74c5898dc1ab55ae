#include "kernels/sample/sample_op.h"

#include "kernels/row_matrix.h"
#include "kernels/sample/draw.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

// An operand that holds one number for each row and may be none.
struct PerRow {
  concert_field field;
  concert_operand concert_sample_body::*operand;
  Address SampleArgs::*address;
  uint32_t bytes;  // of a number; 0: as step_type
};
constexpr PerRow kPerRow[] = {
    {CONCERT_FIELD_TEMPERATURES, &concert_sample_body::temperatures, &SampleArgs::temperatures, 4},
    {CONCERT_FIELD_TOP_KS, &concert_sample_body::top_ks, &SampleArgs::top_ks, 4},
    {CONCERT_FIELD_TOP_PS, &concert_sample_body::top_ps, &SampleArgs::top_ps, 4},
    {CONCERT_FIELD_SEEDS, &concert_sample_body::seeds, &SampleArgs::seeds, 8},
    {CONCERT_FIELD_STEPS, &concert_sample_body::steps, &SampleArgs::steps, 0},
};

uint32_t BytesOf(const PerRow& numbers, const SampleArgs& args) {
  return numbers.bytes != 0 ? numbers.bytes : IndexBytes(args.step_type);
}

Failure CheckScalars(const concert_descriptor& descriptor, const concert_sample_body& body) {
  CONCERT_RETURN_IF_FAILED(
      CheckUnused(descriptor, body.reserved0 | AnyOf(body.reserved1) |
                                  ScalesOf({body.x, body.indices, body.temperatures, body.top_ks,
                                            body.top_ps, body.seeds, body.steps})));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  CONCERT_RETURN_IF_FAILED(CheckIndexType(CONCERT_FIELD_INDEX_DTYPE, body.index_dtype));
  if (body.steps.buffer != 0) {
    CONCERT_RETURN_IF_FAILED(CheckIndexType(CONCERT_FIELD_STEP_DTYPE, body.step_dtype));
  }
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_ROWS, body.rows, 1, kMaxRows));
  return CheckRange(CONCERT_FIELD_COLUMNS, body.columns, 1, kMaxSampleColumns);
}

Failure ResolveOperands(OperandResolver& resolver, const concert_sample_body& body,
                        SampleArgs& args) {
  ByteRange x, indices;
  CONCERT_RETURN_IF_FAILED(ResolveRows(
      resolver, {CONCERT_FIELD_INPUT, CONCERT_FIELD_X_STRIDE}, body.x,
      {.rows = body.rows, .columns = body.columns, .row_stride = body.x_stride}, args.dtype, x));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_INDICES, body.indices,
                                            uint64_t{body.rows}, IndexBytes(args.index_type),
                                            indices));
  args.x = x.begin;
  args.indices = indices.begin;
  for (const PerRow& numbers : kPerRow) {
    const concert_operand& operand = body.*numbers.operand;
    if (operand.buffer == 0) continue;
    ByteRange range;
    CONCERT_RETURN_IF_FAILED(resolver.Resolve(numbers.field, operand, uint64_t{body.rows},
                                              BytesOf(numbers, args), range));
    args.*numbers.address = range.begin;
  }
  return {};
}

policies::Work WorkOf(const SampleArgs& args) {
  const uint64_t elements = uint64_t{args.rows} * args.columns;
  uint64_t bytes_per_row = IndexBytes(args.index_type);
  for (const PerRow& numbers : kPerRow) {
    if (args.*numbers.address != 0) bytes_per_row += BytesOf(numbers, args);
  }
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = args.dtype;
  work.m = args.rows;
  work.n = args.columns;
  work.flops = 16 * elements;  // a weight, of a polynomial
  work.hbm_bytes = elements * DtypeBytes(args.dtype) + args.rows * bytes_per_row;
  return work;
}

}  // namespace

Failure AdmitSample(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_sample_body& body = descriptor.body.sample;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  OperandResolver resolver(context, op);
  op.kind = CONCERT_OP_SAMPLE;
  op.sample = {
      .rows = body.rows,
      .columns = body.columns,
      .x_stride = body.x_stride,
      .seed = body.seed,
      .temperature = body.temperature,
      .top_p = body.top_p,
      .top_k = body.top_k,
      .dtype = static_cast<Dtype>(body.dtype),
      .index_type = static_cast<IndexType>(body.index_dtype),
      .step_type = static_cast<IndexType>(body.step_dtype),
  };
  CONCERT_RETURN_IF_FAILED(ResolveOperands(resolver, body, op.sample));
  op.work = WorkOf(op.sample);
  return CheckOverlaps(AccessesOfSample(op));
}

Accesses AccessesOfSample(const Op& op) {
  const SampleArgs& args = op.sample;
  const uint64_t element = DtypeBytes(args.dtype);
  Accesses accesses;
  accesses.Add(op, CONCERT_FIELD_INPUT, AccessMode::kRead)
      .Set(args.x, args.columns * element, args.rows, args.x_stride * element);
  accesses.Add(op, CONCERT_FIELD_INDICES, AccessMode::kWrite)
      .Set(args.indices, uint64_t{args.rows} * IndexBytes(args.index_type));
  for (const PerRow& numbers : kPerRow) {
    if (args.*numbers.address == 0) continue;
    accesses.Add(op, numbers.field, AccessMode::kRead)
        .Set(args.*numbers.address, uint64_t{args.rows} * BytesOf(numbers, args));
  }
  return accesses;
}

}  // namespace concert::kernels
