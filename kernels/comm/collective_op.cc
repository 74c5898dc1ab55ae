#include "kernels/comm/collective_op.h"

#include <algorithm>

#include "kernels/comm/messages.h"
#include "kernels/comm/peer_args.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

// How a kind of collective reads and writes one rank's memory. Sizes are in multiples of count.
struct Shape {
  bool src_all_ranks;  // src holds ranks * count elements, else count
  bool dst_all_ranks;
  bool reduces;
  bool in_place;  // src and dst may coincide: the smaller one is the rank's slot of the larger
};

Shape ShapeOf(uint16_t kind) {
  switch (kind) {
    case CONCERT_OP_ALL_REDUCE:
      return {.src_all_ranks = false, .dst_all_ranks = false, .reduces = true, .in_place = true};
    case CONCERT_OP_ALL_GATHER:
      return {.src_all_ranks = false, .dst_all_ranks = true, .reduces = false, .in_place = true};
    case CONCERT_OP_REDUCE_SCATTER:
      return {.src_all_ranks = true, .dst_all_ranks = false, .reduces = true, .in_place = true};
    case CONCERT_OP_ALL_TO_ALL:
      return {.src_all_ranks = true, .dst_all_ranks = true, .reduces = false, .in_place = false};
    default:  // broadcast; a barrier has no operands
      return {.src_all_ranks = false, .dst_all_ranks = false, .reduces = false, .in_place = true};
  }
}

// Bytes one rank sends over links by the best known algorithm: ring all_reduce moves 2 (r - 1) / r
// of the data (Patarasuk and Yuan 2009), the others r - 1 slots; a pipelined broadcast passes the
// data on once.
uint64_t LinkBytes(uint16_t kind, uint64_t slot_bytes, uint64_t ranks) {
  switch (kind) {
    case CONCERT_OP_ALL_REDUCE:
      return SaturatingMultiply(slot_bytes / ranks, 2 * (ranks - 1));
    case CONCERT_OP_BROADCAST:
      return ranks > 1 ? slot_bytes : 0;
    case CONCERT_OP_BARRIER:
      return 0;
    default:
      return SaturatingMultiply(slot_bytes, ranks - 1);
  }
}

policies::CollectiveKind KindOf(uint16_t kind) {
  using policies::CollectiveKind;
  switch (kind) {
    case CONCERT_OP_ALL_GATHER:
      return CollectiveKind::kAllGather;
    case CONCERT_OP_REDUCE_SCATTER:
      return CollectiveKind::kReduceScatter;
    case CONCERT_OP_ALL_TO_ALL:
      return CollectiveKind::kAllToAll;
    case CONCERT_OP_BROADCAST:
      return CollectiveKind::kBroadcast;
    default:
      return CollectiveKind::kAllReduce;  // a barrier moves nothing
  }
}

Failure CheckScalars(const concert_descriptor& descriptor, const AdmitContext& context,
                     const Shape& shape) {
  const concert_collective_body& body = descriptor.body.collective;
  uint64_t reserved = body.src.scales | body.dst.scales;
  for (const uint8_t byte : body.reserved0) reserved |= byte;
  for (const uint64_t word : body.reserved1) reserved |= word;
  CONCERT_RETURN_IF_FAILED(
      CheckReserved(descriptor, HeaderReservedIsZero(descriptor) && reserved == 0));
  if (context.ranks == 0) {
    return {CONCERT_ABI_NOT_FOUND, CONCERT_MESSAGE_NO_COMMUNICATOR, {body.communicator}};
  }
  const bool barrier = descriptor.kind == CONCERT_OP_BARRIER;
  if (!barrier || body.dtype != 0) {
    CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  }
  const bool broadcast = descriptor.kind == CONCERT_OP_BROADCAST;
  CONCERT_RETURN_IF_FAILED(
      CheckRange(CONCERT_FIELD_ROOT, body.root, 0, broadcast ? context.ranks - 1 : 0));
  if (body.reduction > (shape.reduces ? CONCERT_ABI_MIN : 0)) {
    return InvalidArgument(CONCERT_MESSAGE_FIELD_VALUE, CONCERT_FIELD_REDUCTION, body.reduction,
                           shape.reduces ? CONCERT_ABI_MIN : 0);
  }
  return CheckRange(CONCERT_FIELD_COUNT, body.count, barrier ? 0 : 1,
                    barrier ? 0 : kMaxCollectiveCount);
}

// Whether src and dst lie as a rank's in place. They hold as many slots, or one of them has one.
bool IsInPlace(const Shape& shape, uint32_t rank, const ByteRange& src, const ByteRange& dst) {
  if (shape.src_all_ranks == shape.dst_all_ranks) return src.begin == dst.begin;
  const ByteRange& slot = shape.src_all_ranks ? dst : src;
  const ByteRange& all = shape.src_all_ranks ? src : dst;
  return slot.begin == all.begin + rank * (slot.end - slot.begin);
}

Failure CheckOverlap(const Shape& shape, uint32_t rank, const ByteRange& src,
                     const ByteRange& dst) {
  if (!src.Overlaps(dst)) return {};
  if (shape.in_place && IsInPlace(shape, rank, src, dst)) return {};
  return InvalidArgument(CONCERT_MESSAGE_OVERLAP, CONCERT_FIELD_DST, CONCERT_FIELD_SRC);
}

Failure ResolveOperands(const concert_descriptor& descriptor, const AdmitContext& context,
                        const Shape& shape, Op& op, ByteRange& src, ByteRange& dst) {
  const concert_collective_body& body = descriptor.body.collective;
  OperandResolver resolver(context, op);
  if (descriptor.kind == CONCERT_OP_BARRIER) {
    CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_SRC, body.src.buffer, 0, 0));
    return CheckRange(CONCERT_FIELD_DST, body.dst.buffer, 0, 0);
  }
  const uint32_t element = DtypeBytes(static_cast<Dtype>(body.dtype));
  // One row per slot, back to back.
  const auto elements = [&](bool all_ranks) {
    return SpanElements(all_ranks ? context.ranks : 1, body.count, body.count, 1, 0);
  };
  CONCERT_RETURN_IF_FAILED(
      resolver.Resolve(CONCERT_FIELD_SRC, body.src, elements(shape.src_all_ranks), element, src));
  CONCERT_RETURN_IF_FAILED(
      resolver.Resolve(CONCERT_FIELD_DST, body.dst, elements(shape.dst_all_ranks), element, dst));
  return CheckOverlap(shape, context.rank, src, dst);
}

}  // namespace

policies::TransportSet TransportsOf(const Op& op, uint64_t ranks, bool pool) {
  using policies::Transport;
  policies::TransportSet transports;
  transports.Add(Transport::kNccl);
  if (op.kind == CONCERT_OP_BARRIER || ranks < 2) return transports;
  const Messages messages = MessagesOf(op);
  const bool aligned =
      (op.collective.src | op.collective.dst | messages.bytes) % kPeerAlignment == 0;
  const bool few = ranks <= cuda::kMaxPeers;
  const bool in_reach = few && pool && aligned;
  if ((few && FitsInboxes(messages.bytes, ranks)) || in_reach) transports.Add(Transport::kPeer);
  const bool leaves_once = !messages.from_root || ranks == 2;
  if (!messages.reduces && leaves_once) transports.Add(Transport::kCopyEngine);
  if (op.kind == CONCERT_OP_ALL_REDUCE && in_reach) transports.Add(Transport::kHybrid);
  return transports;
}

Failure AdmitCollective(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_collective_body& body = descriptor.body.collective;
  const Shape shape = ShapeOf(descriptor.kind);
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, context, shape));
  ByteRange src, dst;
  CONCERT_RETURN_IF_FAILED(ResolveOperands(descriptor, context, shape, op, src, dst));

  const bool barrier = descriptor.kind == CONCERT_OP_BARRIER;
  const Dtype dtype = barrier ? Dtype::kFp32 : static_cast<Dtype>(body.dtype);
  const uint64_t src_bytes = src.end - src.begin, dst_bytes = dst.end - dst.begin;
  op.kind = descriptor.kind;
  op.work = {};
  op.work.runs_on = policies::RunsOn::kLinks;
  op.work.dtype = dtype;
  op.work.ranks = static_cast<uint8_t>(context.ranks);
  op.work.collective = KindOf(descriptor.kind);
  op.work.hbm_bytes = src_bytes + dst_bytes;
  op.work.link_bytes = LinkBytes(descriptor.kind, body.count * DtypeBytes(dtype), context.ranks);
  op.collective = {.communicator = body.communicator,
                   .root = body.root,
                   .sequence = body.sequence,
                   .count = body.count,
                   .src = src.begin,
                   .dst = dst.begin,
                   .src_bytes = src_bytes,
                   .dst_bytes = dst_bytes,
                   .dtype = dtype,
                   .reduction = static_cast<Reduction>(body.reduction)};
  const bool pool = std::all_of(op.buffers.begin(), op.buffers.end(),
                                [&](uint32_t index) { return context.buffers[index].pool; });
  op.work.transports = TransportsOf(op, context.ranks, pool);
  // Out of place; of a broadcast only the root would, and nobody has told here which rank this is.
  op.work.keeps =
      !barrier && !shape.reduces && descriptor.kind != CONCERT_OP_BROADCAST && !src.Overlaps(dst);
  return {};
}

Accesses AccessesOfCollective(const Op& op) {
  Accesses accesses;
  if (op.kind == CONCERT_OP_BARRIER) return accesses;
  const CollectiveArgs& args = op.collective;
  accesses.Add(op, CONCERT_FIELD_SRC, AccessMode::kRead).Set(args.src, args.src_bytes);
  accesses.Add(op, CONCERT_FIELD_DST, AccessMode::kWrite).Set(args.dst, args.dst_bytes);
  return accesses;
}

}  // namespace concert::kernels
