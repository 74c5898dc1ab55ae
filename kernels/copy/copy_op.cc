#include "kernels/copy/copy_op.h"

#include <algorithm>
#include <cstring>

#include "kernels/validate.h"

namespace concert::kernels {
namespace {

// Whether the buffer, named as in Op::buffers, is pool memory of another GPU.
bool LiesElsewhere(const AdmitContext& context, uint32_t index) {
  const BufferRange& buffer =
      index & kSlotBit ? context.slots[index & ~kSlotBit] : context.buffers[index];
  return buffer.gpu != context.gpu;
}

}  // namespace

Failure AdmitCopy(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_copy_body& body = descriptor.body.copy;
  uint64_t reserved = body.src.scales | body.dst.scales;
  for (const uint64_t word : body.reserved) reserved |= word;
  CONCERT_RETURN_IF_FAILED(
      CheckReserved(descriptor, HeaderReservedIsZero(descriptor) && reserved == 0));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_BYTES, body.bytes, 1, kMaxCopyBytes));
  OperandResolver resolver(context, op);
  ByteRange src, dst;
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_SRC, body.src, body.bytes, 1, src));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_DST, body.dst, body.bytes, 1, dst));
  if (dst.Overlaps(src)) {
    return InvalidArgument(CONCERT_MESSAGE_OVERLAP, CONCERT_FIELD_DST, CONCERT_FIELD_SRC);
  }
  op.kind = CONCERT_OP_COPY;
  op.work = {};
  op.work.runs_on = policies::RunsOn::kCopyEngine;
  op.work.hbm_bytes = 2 * body.bytes;  // read and written
  const bool crosses = std::any_of(op.buffers.begin(), op.buffers.end(),
                                   [&](uint32_t index) { return LiesElsewhere(context, index); });
  if (crosses) op.work.link_bytes = body.bytes;
  op.copy = {.src = src.begin, .dst = dst.begin, .bytes = body.bytes};
  return {};
}

Accesses AccessesOfCopy(const Op& op) {
  Accesses accesses;
  const CopyArgs& args = op.copy;
  accesses.Add(op, CONCERT_FIELD_SRC, AccessMode::kRead).Set(args.src, args.bytes);
  accesses.Add(op, CONCERT_FIELD_DST, AccessMode::kWrite).Set(args.dst, args.bytes);
  return accesses;
}

void ComputeCopy(std::span<const Op* const> parts) {
  const CopyArgs& args = parts[0]->copy;
  std::memcpy(reinterpret_cast<void*>(args.dst), reinterpret_cast<const void*>(args.src),
              args.bytes);
}

}  // namespace concert::kernels
