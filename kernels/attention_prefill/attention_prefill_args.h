// Attention of chunks of new tokens with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_ATTENTION_PREFILL_ATTENTION_PREFILL_ARGS_H_
#define CONCERT_KERNELS_ATTENTION_PREFILL_ATTENTION_PREFILL_ARGS_H_

#include <cstdint>

#include "kernels/attention_decode/attention_decode_args.h"

namespace concert::kernels {

// As concert_attention_prefill_body.
struct AttentionPrefillArgs {
  AttentionDecodeArgs attention;  // its rows are sequences; q and out have `tokens` rows
  uint32_t tokens;
  Address query_starts;

  // Where the chunk of a sequence begins among the rows of q, or, of sequence rows, where the last
  // one ends. Chunks need not be in order: a client may have written anything.
  CONCERT_ON_BOTH_SIDES uint32_t StartOf(uint64_t sequence) const {
    return static_cast<uint32_t>(
        Clamped(LoadIndex(query_starts, sequence, IndexType::kInt32), uint64_t{tokens} + 1));
  }
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ATTENTION_PREFILL_ATTENTION_PREFILL_ARGS_H_
