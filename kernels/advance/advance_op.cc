#include "kernels/advance/advance_op.h"

#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor, const concert_advance_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckUnused(descriptor, body.reserved0 | body.reserved1 |
                                                       AnyOf(body.reserved2) |
                                                       ScalesOf({body.counters, body.slots})));
  CONCERT_RETURN_IF_FAILED(CheckIndexType(CONCERT_FIELD_COUNTER_DTYPE, body.counter_dtype));
  if (body.slots.buffer != 0) {
    CONCERT_RETURN_IF_FAILED(CheckIndexType(CONCERT_FIELD_SLOT_DTYPE, body.slot_dtype));
  }
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_ROWS, body.rows, 1, kMaxRows));
  return CheckRange(CONCERT_FIELD_COUNTER_MAX, body.counter_max, 1, INT32_MAX);
}

policies::Work WorkOf(const AdvanceArgs& args) {
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = Dtype::kFp32;  // of no consequence: it moves no elements
  work.m = args.rows;
  work.n = 1;
  work.hbm_bytes = uint64_t{args.rows} * (2 * IndexBytes(args.counter_type) +
                                          (args.slots != 0 ? IndexBytes(args.slot_type) : 0));
  return work;
}

}  // namespace

Failure AdmitAdvance(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_advance_body& body = descriptor.body.advance;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  const auto counter_type = static_cast<IndexType>(body.counter_dtype);
  const auto slot_type = static_cast<IndexType>(body.slot_dtype);
  OperandResolver resolver(context, op);
  ByteRange counters, slots;
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_COUNTERS, body.counters,
                                            uint64_t{body.rows}, IndexBytes(counter_type),
                                            counters));
  if (body.slots.buffer != 0) {
    CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_SLOTS, body.slots, uint64_t{body.rows},
                                              IndexBytes(slot_type), slots));
  }
  op.kind = CONCERT_OP_ADVANCE;
  op.advance = {
      .rows = body.rows,
      .counter_max = body.counter_max,
      .counters = counters.begin,
      .slots = slots.begin,
      .counter_type = counter_type,
      .slot_type = slot_type,
  };
  op.work = WorkOf(op.advance);
  return CheckOverlaps(AccessesOfAdvance(op));
}

Accesses AccessesOfAdvance(const Op& op) {
  const AdvanceArgs& args = op.advance;
  Accesses accesses;
  accesses.Add(op, CONCERT_FIELD_COUNTERS, AccessMode::kReadWrite)
      .Set(args.counters, uint64_t{args.rows} * IndexBytes(args.counter_type));
  if (args.slots != 0) {
    accesses.Add(op, CONCERT_FIELD_SLOTS, AccessMode::kRead)
        .Set(args.slots, uint64_t{args.rows} * IndexBytes(args.slot_type));
  }
  return accesses;
}

}  // namespace concert::kernels
