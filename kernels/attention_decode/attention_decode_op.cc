#include "kernels/attention_decode/attention_decode_op.h"

#include <algorithm>
#include <limits>

#include "kernels/attention/attention_operands.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

// Tokens that are worth a block of their own, to the cost model.
constexpr uint32_t kBlockTokens = 512;

Failure CheckScalars(const concert_descriptor& descriptor,
                     const concert_attention_decode_body& body) {
  uint64_t unused = body.reserved0 | AnyOf(body.reserved1) | AnyOf(body.reserved2);
  unused |= ScalesOf({body.q, body.page_table, body.lengths, body.out});
  CONCERT_RETURN_IF_FAILED(CheckUnused(descriptor, unused));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_ROWS, body.rows, 1, kMaxSequences));
  CONCERT_RETURN_IF_FAILED(CheckHeads(body));
  return CheckLayout(body, body.rows);
}

// As if all rows were as long as they may be: how long they are only the GPU sees.
policies::Work WorkOf(const AttentionDecodeArgs& args) {
  const uint64_t rows = args.rows, q_columns = uint64_t{args.q_heads} * args.head_dim;
  const uint64_t tokens = rows * args.span_max();
  const uint64_t blocks =
      rows * args.kv_heads * ((args.span_max() + kBlockTokens - 1) / kBlockTokens);
  policies::Work work;
  work.m = static_cast<uint32_t>(std::min<uint64_t>(blocks, std::numeric_limits<uint32_t>::max()));
  work.n = args.head_dim;
  work.flops = SaturatingMultiply(4 * tokens, q_columns);
  work.hbm_bytes =
      SaturatingAdd(SaturatingMultiply(tokens, 2 * uint64_t{args.kv_heads} * args.head_dim *
                                                   DtypeBytes(args.cache.dtype)),
                    rows * (q_columns * 4 + sizeof(int32_t)));
  return work;
}

}  // namespace

Failure AdmitAttentionDecode(const concert_descriptor& descriptor, const AdmitContext& context,
                             Op& op) {
  const concert_attention_decode_body& body = descriptor.body.attention_decode;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  OperandResolver resolver(context, op);
  op.kind = CONCERT_OP_ATTENTION_DECODE;
  op.attention_decode = AttentionArgsOf(body, body.rows);
  CONCERT_RETURN_IF_FAILED(
      ResolveAttention(resolver, body, body.rows, /*out_unit=*/1, op.attention_decode));
  op.work = WorkOf(op.attention_decode);
  return CheckOverlaps(AccessesOfAttentionDecode(op));
}

Accesses AccessesOfAttentionDecode(const Op& op) {
  Accesses accesses;
  AddAttention(accesses, op, op.attention_decode, op.attention_decode.rows);
  return accesses;
}

bool AttentionDecodeGoesWith(const Op& op, const Op& other) {
  const auto without_addresses = [](AttentionDecodeArgs args) {
    args.q = args.page_table = args.lengths = args.out = args.cache.k = args.cache.v = 0;
    return args;
  };
  return without_addresses(op.attention_decode) == without_addresses(other.attention_decode);
}

}  // namespace concert::kernels
