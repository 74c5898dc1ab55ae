// What a block of the kernel of attention_prefill works on. Shared by host and device code.
#ifndef CONCERT_KERNELS_ATTENTION_PREFILL_PREFILL_TILE_H_
#define CONCERT_KERNELS_ATTENTION_PREFILL_PREFILL_TILE_H_

#include <cstdint>

#include "kernels/attention_prefill/attention_prefill_args.h"

namespace concert::kernels::cuda {

inline constexpr int kPrefillThreads = 128;
inline constexpr int kPrefillBlocksPerSm = 2;
// Rows of a tile: all heads of q that share one of the cache, of as many tokens as fit. Sums of
// heads of 256 leave registers for half as many.
CONCERT_ON_BOTH_SIDES constexpr uint32_t PrefillRows(uint32_t head_dim) {
  return head_dim > 128 ? 64 : 128;
}
// Tokens of the cache that are in shared memory at a time, twice. With heads of 256 so many that a
// block has no more of it than with heads of 128, and runs wherever that does.
CONCERT_ON_BOTH_SIDES constexpr uint32_t PrefillTokens(uint32_t head_dim) {
  return head_dim > 128 ? 32 : 64;
}

// Dynamic shared memory of a block: q, K and V (in e4m3, and once in bf16), where tokens lie, and a
// tile, which takes less than a row.
CONCERT_ON_BOTH_SIDES constexpr uint32_t PrefillSharedBytes(uint32_t head_dim) {
  const uint32_t tokens = PrefillTokens(head_dim);
  return 2 * head_dim * (PrefillRows(head_dim) + 4 * tokens + 1) + 2 * 8 * tokens;
}

// Some neighbouring tokens of a chunk.
struct PrefillTile {
  uint32_t sequence;
  uint32_t first;   // row of q and of out
  uint32_t tokens;  // 0: nothing to do
  // Tokens of the cache that the first of them attends to; each one's successor to one more. Below
  // 1 to none.
  int32_t visible;
};

// `rows`: PrefillRows, here and below.
CONCERT_ON_BOTH_SIDES inline uint32_t PrefillTileTokens(const AttentionPrefillArgs& op,
                                                        uint32_t rows) {
  return rows / (op.attention.q_heads / op.attention.kv_heads);
}

// Tiles are numbered so that where those of a sequence begin follows from where its chunk does: at
// start / tokens of a tile + sequence. A chunk of n tokens has ceil(n / tokens) tiles, which is at
// most as many numbers as there are up to the next sequence's; a number too many is a tile of
// nothing.
CONCERT_ON_BOTH_SIDES inline uint64_t PrefillTiles(const AttentionPrefillArgs& op, uint32_t rows) {
  return uint64_t{op.tokens / PrefillTileTokens(op, rows)} + op.attention.rows;
}

// Whatever the client has written, also meanwhile: a tile of rows of q and out that there are,
// whose last token attends to at most length_max tokens.
CONCERT_ON_BOTH_SIDES inline PrefillTile PrefillTileOf(const AttentionPrefillArgs& op,
                                                       uint32_t rows, uint64_t number) {
  const uint32_t most = PrefillTileTokens(op, rows);
  // The last sequence whose tiles do not begin behind it.
  uint32_t sequence = 0, end = op.attention.rows;
  while (end - sequence > 1) {
    const uint32_t middle = sequence + (end - sequence) / 2;
    (uint64_t{op.StartOf(middle) / most} + middle <= number ? sequence : end) = middle;
  }
  PrefillTile tile = {.sequence = sequence, .first = 0, .tokens = 0, .visible = 0};
  const uint64_t chunk = op.StartOf(sequence), chunk_end = op.StartOf(uint64_t{sequence} + 1);
  const uint64_t first_number = chunk / most + sequence;
  if (number < first_number) return tile;
  const uint64_t first = chunk + (number - first_number) * most;
  if (first >= chunk_end) return tile;
  const uint64_t tokens = chunk_end - first;
  tile.first = static_cast<uint32_t>(first);
  tile.tokens = static_cast<uint32_t>(tokens < most ? tokens : most);
  const int64_t length = op.attention.LengthOf(sequence);
  tile.visible = static_cast<int32_t>(length - static_cast<int64_t>(tokens) + 1);
  return tile;
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_PREFILL_PREFILL_TILE_H_
