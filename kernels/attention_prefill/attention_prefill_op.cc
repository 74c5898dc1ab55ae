#include "kernels/attention_prefill/attention_prefill_op.h"

#include <algorithm>
#include <limits>

#include "kernels/attention/attention_operands.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

constexpr uint64_t kMaxTokens = 1 << 20;
// Rows of q, of one head each, that are worth a block of their own, to the cost model.
constexpr uint64_t kBlockRows = 128;
// Kernels that multiply by mma.sync, as FlashAttention-2 and ours, reach 35 % of the 989e12 FLOP/s
// of an H100's data sheet (Shah et al., arXiv:2407.08608, abstract). Ours, of the 790e12 that GEMMs
// reach on an H200: 0.27 to 0.43 on prompts of 2048 to 16384 tokens (ADR 28).
constexpr float kFlopsShare = 0.35f;

Failure CheckScalars(const concert_descriptor& descriptor,
                     const concert_attention_prefill_body& body) {
  uint64_t unused = body.reserved0 | AnyOf(body.reserved1) | body.reserved2;
  unused |= ScalesOf({body.q, body.query_starts, body.page_table, body.lengths, body.out});
  CONCERT_RETURN_IF_FAILED(CheckUnused(descriptor, unused));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_TOKENS, body.tokens, 1, kMaxTokens));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_SEQUENCES, body.sequences, 1, kMaxSequences));
  CONCERT_RETURN_IF_FAILED(CheckHeads(body));
  CONCERT_RETURN_IF_FAILED(CheckMultiple(CONCERT_FIELD_OUT_STRIDE, body.out_stride, kUnitElements));
  return CheckLayout(body, body.sequences);
}

// As if all sequences were as long as they may be, and their chunks one as long as the other: what
// they are only the GPU sees.
policies::Work WorkOf(const AttentionPrefillArgs& args) {
  const AttentionDecodeArgs& attention = args.attention;
  const uint64_t tokens = args.tokens, sequences = attention.rows;
  const uint64_t q_columns = uint64_t{attention.q_heads} * attention.head_dim;
  const uint64_t length = attention.length_max, span = attention.span_max();
  const uint64_t chunk = std::min((tokens - 1) / sequences + 1, length);
  // The first token of a chunk attends to all before it and itself, the last to all.
  const uint64_t attended = std::min(span, length - (chunk - 1) / 2);
  const uint64_t read = sequences * std::min(length, span + chunk - 1);
  const uint64_t rows_of_head = chunk * (attention.q_heads / attention.kv_heads);
  const uint64_t blocks =
      sequences * attention.kv_heads * ((rows_of_head + kBlockRows - 1) / kBlockRows);
  policies::Work work;
  work.m = static_cast<uint32_t>(std::min<uint64_t>(blocks, std::numeric_limits<uint32_t>::max()));
  work.n = attention.head_dim;
  work.flops = SaturatingMultiply(4 * tokens * attended, q_columns);
  work.flops_share = kFlopsShare;
  work.hbm_bytes =
      SaturatingAdd(SaturatingMultiply(read, 2 * uint64_t{attention.kv_heads} * attention.head_dim *
                                                 DtypeBytes(attention.cache.dtype)),
                    tokens * q_columns * 4 + (2 * sequences + 1) * sizeof(int32_t));
  return work;
}

}  // namespace

Failure AdmitAttentionPrefill(const concert_descriptor& descriptor, const AdmitContext& context,
                              Op& op) {
  const concert_attention_prefill_body& body = descriptor.body.attention_prefill;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  OperandResolver resolver(context, op);
  op.kind = CONCERT_OP_ATTENTION_PREFILL;
  AttentionPrefillArgs& args = op.attention_prefill;
  args = {.attention = AttentionArgsOf(body, body.sequences), .tokens = body.tokens};
  CONCERT_RETURN_IF_FAILED(
      ResolveAttention(resolver, body, body.tokens, kUnitElements, args.attention));
  ByteRange starts;
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_QUERY_STARTS, body.query_starts,
                                            uint64_t{body.sequences} + 1, sizeof(int32_t), starts));
  args.query_starts = starts.begin;
  op.work = WorkOf(args);
  return CheckOverlaps(AccessesOfAttentionPrefill(op));
}

Accesses AccessesOfAttentionPrefill(const Op& op) {
  const AttentionPrefillArgs& args = op.attention_prefill;
  Accesses accesses;
  AddAttention(accesses, op, args.attention, args.tokens);
  accesses.Add(op, CONCERT_FIELD_QUERY_STARTS, AccessMode::kRead)
      .Set(args.query_starts, (uint64_t{args.attention.rows} + 1) * sizeof(int32_t));
  return accesses;
}

}  // namespace concert::kernels
