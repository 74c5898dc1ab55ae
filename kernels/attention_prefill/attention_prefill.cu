// Attention of chunks of new tokens, as FlashAttention-2 does it (Dao, arXiv:2307.08691): a block
// keeps a tile of rows of q and walks over the tokens of the cache that they attend to, 64 at a
// time, with a softmax that is corrected as larger scores come. The next 64 are on their way to
// shared memory meanwhile, from wherever the page table says; where they lie is looked up one step
// earlier still. Rows of a tile are the heads of q that share one of the cache, of neighbouring
// tokens, so that K and V are read once for all of them and little beyond the diagonal is computed.
#include "kernels/attention/attention.cuh"
#include "kernels/attention_prefill/prefill_tile.h"
#include "kernels/cuda_api/matrices.cuh"
#include "kernels/group/async.cuh"

namespace concert::kernels::cuda {
namespace {

constexpr uint32_t kWarps = kPrefillThreads / 32;
constexpr int kUnbounded = 1 << 30;  // a window that is none

// How a block's work on heads of `kDim` is cut.
template <int kDim>
struct Cut {
  static constexpr uint32_t kRows = PrefillRows(kDim), kTokens = PrefillTokens(kDim);
  static constexpr uint32_t kWarpRows = kRows / kWarps;
  static constexpr int kRowTiles = kWarpRows / 16;  // of a warp; m of its products
  static constexpr int kTokenTiles = kTokens / 8;   // n of products with K
  static constexpr int kTokenSteps = kTokens / 16;  // k of products with V
  static_assert(kTokens <= kPrefillThreads, "a thread looks up a token");
};

// --- Shared memory ---

// Rows of heads in units of 16 bytes. Units change places within a row, by its number, so that the
// same unit of 8 neighbouring rows lies in different banks.
template <int kDim, uint32_t kRows>
struct alignas(2 * kDim) HeadRows {
  static constexpr uint32_t kUnits = kDim / 8;
  uint4 units[kRows * kUnits];

  __device__ uint4* At(uint32_t row, uint32_t unit) {
    return &units[row * kUnits + (unit ^ row % 8)];
  }
  // From the address of unit 0 or 1 of a row to that of a unit that is 2 * `pairs` further, of the
  // row that is 16 * `rows` below: without registers for each of them.
  static __device__ uint32_t Further(uint32_t address, int pairs, int rows) {
    return (address ^ 32 * pairs) + rows * 16 * kUnits * sizeof(uint4);
  }
};

// K and V of tokens in bf16, those of the next on their way.
template <int kDim, typename Cached>
struct TokenStages {
  using Rows = HeadRows<kDim, PrefillTokens(kDim)>;
  Rows k[2], v[2];

  __device__ Rows& KeysOf(int stage) { return k[stage]; }
  __device__ Rows& ValuesOf(int stage) { return v[stage]; }
};
// In e4m3 they come as they are, and threads widen what they have copied themselves: so that each
// element is widened once in a block, and neighbouring threads' units are neighbours.
template <int kDim>
struct TokenStages<kDim, E4m3> {
  using Rows = HeadRows<kDim, PrefillTokens(kDim)>;
  static constexpr uint32_t kUnits = kDim / 16;
  static constexpr uint32_t kCopies = PrefillTokens(kDim) * kUnits / kPrefillThreads;
  Rows k, v;
  uint4 narrow_k[2][kCopies][kPrefillThreads], narrow_v[2][kCopies][kPrefillThreads];

  __device__ Rows& KeysOf(int) { return k; }
  __device__ Rows& ValuesOf(int) { return v; }
};

// Of dynamic shared memory, since it is more than 48 KB.
template <int kDim, typename Cached>
struct PrefillMemory {
  HeadRows<kDim, PrefillRows(kDim)> q;  // then out
  TokenStages<kDim, Cached> tokens;
  uint64_t token_at[2][PrefillTokens(kDim)];  // where the head begins, in elements of k and v
  PrefillTile tile;
  static_assert(sizeof(q) + sizeof(tokens) + sizeof(token_at) + sizeof(tile) <=
                PrefillSharedBytes(kDim));
};

// --- A block's item ---

// A tile for one head of the cache.
struct Item {
  PrefillTile tile;
  uint32_t kv_head, group;
  uint32_t begin, end;  // tokens of the cache that some of its rows attend to
  int window;

  // Row of q's token among the tile's, and which of the heads that share the cache's.
  __device__ uint32_t TokenOf(uint32_t row) const { return row / group; }
  __device__ uint32_t HeadOf(uint32_t row) const {
    return kv_head * group + row - TokenOf(row) * group;
  }
  // A row attends to tokens from VisibleTo() - window on and below VisibleTo().
  __device__ int VisibleTo(uint32_t row) const {
    return tile.visible + static_cast<int>(TokenOf(row));
  }
};

// `rows`: of a tile. REQUIRES: all threads call it, with the same number. They must see one tile,
// while the client may change what it is made of.
__device__ Item ItemOf(const AttentionPrefillArgs& op, uint32_t rows, uint64_t number,
                       PrefillTile& shared_tile) {
  const AttentionDecodeArgs& attention = op.attention;
  Item item;
  item.kv_head = static_cast<uint32_t>(number % attention.kv_heads);
  item.group = attention.q_heads / attention.kv_heads;
  item.window = attention.window == 0 || attention.window > kUnbounded
                    ? kUnbounded
                    : static_cast<int>(attention.window);
  __syncthreads();  // the item before is done with shared memory
  // The last tiles of a sequence take longest, so they go first.
  if (threadIdx.x == 0) {
    shared_tile = PrefillTileOf(op, rows, PrefillTiles(op, rows) - 1 - number / attention.kv_heads);
  }
  __syncthreads();
  item.tile = shared_tile;
  item.begin = static_cast<uint32_t>(max(item.tile.visible - item.window, 0));
  item.end =
      static_cast<uint32_t>(max(item.tile.visible + static_cast<int>(item.tile.tokens) - 1, 0));
  item.begin = min(item.begin, item.end);
  return item;
}

// Where a thread's token of kTokens in a row is. Asked for in one step and worked out in the next:
// nobody is to wait for the page table, which others write and so comes from the L2 cache or
// farther.
template <uint32_t kTokens>
class TokenLookup {
 public:
  __device__ TokenLookup(const AttentionDecodeArgs& op, const Item& item, uint32_t first)
      : op_(op), item_(item) {
    Ask(first);
  }
  // For those from `first` on; for the item's last, if there are fewer.
  __device__ void Ask(uint32_t first) {
    if (first >= item_.end || threadIdx.x >= kTokens) return;
    const uint32_t token = min(first + threadIdx.x, item_.end - 1);
    const uint32_t page = token / op_.cache.page_size;
    token_ = token - page * op_.cache.page_size;
    page_ = op_.RawPageOf(item_.tile.sequence, page);
  }
  // The element of k and of v at which the head of the token begins.
  __device__ uint64_t Place() const {
    return op_.cache.TokenAt(Clamped(page_, op_.cache.pages), token_) +
           uint64_t{item_.kv_head} * op_.cache.head_stride;
  }

 private:
  const AttentionDecodeArgs& op_;
  const Item& item_;
  uint32_t token_ = 0;  // of its page
  int32_t page_ = 0;    // as it came
};

template <int kDim>
__device__ void CopyQ(const AttentionPrefillArgs& op, const Item& item,
                      HeadRows<kDim, PrefillRows(kDim)>& q) {
  constexpr uint32_t kUnits = kDim / 8;
  for (uint32_t i = threadIdx.x; i < PrefillRows(kDim) * kUnits; i += kPrefillThreads) {
    const uint32_t row = i / kUnits, unit = i % kUnits, token = item.TokenOf(row);
    const bool present = token < item.tile.tokens;
    const uint64_t element = (uint64_t{item.tile.first} + token) * op.attention.q_stride +
                             item.HeadOf(row) * kDim + 8 * unit;
    CopyUnit(SharedAddress(q.At(row, unit)), op.attention.q + (present ? element * 2 : 0),
             present ? 16 : 0);
  }
}

template <int kDim>
__device__ void CopyTokens(const AttentionDecodeArgs& op,
                           const uint64_t (&token_at)[PrefillTokens(kDim)], int stage,
                           TokenStages<kDim, __nv_bfloat16>& tokens) {
  constexpr uint32_t kUnits = kDim / 8;
  constexpr uint32_t kStep = kPrefillThreads / kUnits;  // tokens at a time
  const uint32_t unit = threadIdx.x % kUnits;
#pragma unroll
  for (uint32_t i = 0; i < PrefillTokens(kDim) / kStep; ++i) {
    const uint32_t token = threadIdx.x / kUnits + i * kStep;
    const uint64_t byte = (token_at[token] + 8 * unit) * 2;
    CopyUnit(SharedAddress(tokens.k[stage].At(token, unit)), op.cache.k + byte, 16);
    CopyUnit(SharedAddress(tokens.v[stage].At(token, unit)), op.cache.v + byte, 16);
  }
}

// Which unit of which token a thread's copy `i` is.
template <int kDim>
struct NarrowUnit {
  static constexpr uint32_t kUnits = TokenStages<kDim, E4m3>::kUnits;
  uint32_t token, unit;

  __device__ explicit NarrowUnit(uint32_t i)
      : token(threadIdx.x / kUnits + i * (kPrefillThreads / kUnits)), unit(threadIdx.x % kUnits) {}
};

template <int kDim>
__device__ void CopyTokens(const AttentionDecodeArgs& op,
                           const uint64_t (&token_at)[PrefillTokens(kDim)], int stage,
                           TokenStages<kDim, E4m3>& tokens) {
#pragma unroll
  for (uint32_t i = 0; i < tokens.kCopies; ++i) {
    const NarrowUnit<kDim> at(i);
    const uint64_t byte = token_at[at.token] + 16 * at.unit;
    CopyUnit(SharedAddress(&tokens.narrow_k[stage][i][threadIdx.x]), op.cache.k + byte, 16);
    CopyUnit(SharedAddress(&tokens.narrow_v[stage][i][threadIdx.x]), op.cache.v + byte, 16);
  }
}

// A unit in e4m3 to two in bf16. The second goes first where it must, for 8 neighbouring threads to
// store to different banks.
template <int kDim>
__device__ void WidenUnit(const uint4& narrow, const NarrowUnit<kDim>& at,
                          HeadRows<kDim, PrefillTokens(kDim)>& rows) {
  const uint32_t first = at.unit / 4 % 2;
  const uint4 low = Widen(narrow.x, narrow.y), high = Widen(narrow.z, narrow.w);
  *rows.At(at.token, 2 * at.unit + first) = first == 0 ? low : high;
  *rows.At(at.token, 2 * at.unit + 1 - first) = first == 0 ? high : low;
}

// Makes bf16 of what this thread has copied, which must be there, for all threads.
template <int kDim>
__device__ void WidenTokens(int stage, TokenStages<kDim, E4m3>& tokens) {
#pragma unroll
  for (uint32_t i = 0; i < tokens.kCopies; ++i) {
    const NarrowUnit<kDim> at(i);
    WidenUnit<kDim>(tokens.narrow_k[stage][i][threadIdx.x], at, tokens.k);
    WidenUnit<kDim>(tokens.narrow_v[stage][i][threadIdx.x], at, tokens.v);
  }
  __syncthreads();
}
template <int kDim>
__device__ void WidenTokens(int, TokenStages<kDim, __nv_bfloat16>&) {}

// --- A warp's rows ---

template <int kDim>
struct WarpPrefill {
  using Queries = HeadRows<kDim, PrefillRows(kDim)>;
  using Keys = HeadRows<kDim, PrefillTokens(kDim)>;
  static constexpr uint32_t kWarpRows = Cut<kDim>::kWarpRows;
  static constexpr int kRowTiles = Cut<kDim>::kRowTiles;
  static constexpr int kTokenTiles = Cut<kDim>::kTokenTiles;
  static constexpr int kDimTiles = kDim / 8;   // n of products with V
  static constexpr int kDimSteps = kDim / 16;  // k of products with K

  // A lane has row lane / 4 of each 16 rows, and that 8 below: [row tile][which].
  float sums[kRowTiles][kDimTiles][4] = {};
  float largest[kRowTiles][2], weights[kRowTiles][2];  // weights: of the lane's own tokens
  float scores[kRowTiles][kTokenTiles][4];

  __device__ WarpPrefill() {
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      largest[i / 2][i % 2] = -INFINITY;
      weights[i / 2][i % 2] = 0;
    }
  }

  // Tokens from `first` on.
  __device__ void Add(const AttentionDecodeArgs& op, const Item& item, uint32_t first, Queries& q,
                      Keys& k, Keys& v) {
    MultiplyKeys(q, k);
    const float by = Scale(op);
    Mask(item, static_cast<int>(first));
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) Weigh(i / 2, i % 2, by);
    AddValues(v);
  }

  // A row's place in the tile.
  static __device__ uint32_t RowOf(int row_tile, int half) {
    return threadIdx.x / 32 * kWarpRows + 16 * row_tile + 8 * half + threadIdx.x % 32 / 4;
  }

 private:
  __device__ void MultiplyKeys(Queries& q, Keys& k) {
    const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * kWarpRows + lane % 16;
    const uint32_t q_at = SharedAddress(q.At(row, lane / 16));
    const uint32_t k_at = SharedAddress(k.At(lane / 16 * 8 + lane % 8, lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < 4 * kRowTiles * kTokenTiles; ++i) {
      scores[i / (4 * kTokenTiles)][i / 4 % kTokenTiles][i % 4] = 0;
    }
#pragma unroll
    for (int step = 0; step < kDimSteps; ++step) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        LoadMatrices(q.Further(q_at, step, i), a[i]);
      }
#pragma unroll
      for (int pair = 0; pair < kTokenTiles / 2; ++pair) {
        uint32_t b[4];
        LoadMatrices(k.Further(k_at, step, pair), b);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          MultiplyAdd(scores[i][2 * pair], a[i], b[0], b[1]);
          MultiplyAdd(scores[i][2 * pair + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  // What scores are to be multiplied by to be times log2(e): softmax does that on the way. It would
  // not know the largest of what changes its sign, nor is a score with a soft cap such a product:
  // these become what they are to be here. tanh(x) = 1 - 2 / (2^(2 * log2(e) * x) + 1), also where
  // that overflows.
  __device__ float Scale(const AttentionDecodeArgs& op) {
    const float scale = op.scale * kLog2E;
    if (op.soft_cap == 0 && scale > 0) return scale;
    if (op.soft_cap == 0) {
      ForEachScore([scale](float& score) { score *= scale; });
    } else {
      const float twice = 2 * scale / op.soft_cap, cap = op.soft_cap * kLog2E;
      ForEachScore([twice, cap](float& score) {
        score = cap - __fdividef(2 * cap, Exp2(score * twice) + 1);
      });
    }
    return 1;
  }

  // Takes out what rows do not attend to.
  __device__ void Mask(const Item& item, int first) {
    const uint32_t warp_row = threadIdx.x / 32 * kWarpRows;
    const bool all_below =
        first + static_cast<int>(PrefillTokens(kDim)) <= item.VisibleTo(warp_row);
    const bool all_in_window = first >= item.VisibleTo(warp_row + kWarpRows - 1) - item.window;
    if (all_below && all_in_window) return;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int visible = item.VisibleTo(RowOf(i, half)), oldest = visible - item.window;
#pragma unroll
        for (int j = 0; j < 2 * kTokenTiles; ++j) {
          const int token = first + 8 * (j / 2) + 2 * static_cast<int>(threadIdx.x % 4) + j % 2;
          if (token >= visible || token < oldest) scores[i][j / 2][2 * half + j % 2] = -INFINITY;
        }
      }
    }
  }

  // Makes weights of a row's scores, multiplied by `by`, and what was added before fit them.
  __device__ void Weigh(int i, int half, float by) {
    float now = largest[i][half];
#pragma unroll
    for (int j = 0; j < 2 * kTokenTiles; ++j) {
      now = fmaxf(now, scores[i][j / 2][2 * half + j % 2]);
    }
    now = fmaxf(now, __shfl_xor_sync(kAll, now, 1));
    now = fmaxf(now, __shfl_xor_sync(kAll, now, 2));
    // All scores may be -inf, which is no number to subtract.
    const float base = now == -INFINITY ? 0 : now * by;
    const float scale = Exp2(largest[i][half] * by - base);
    largest[i][half] = now;
    weights[i][half] *= scale;
#pragma unroll
    for (int j = 0; j < 2 * kTokenTiles; ++j) {
      float& score = scores[i][j / 2][2 * half + j % 2];
      score = Exp2(score * by - base);
      weights[i][half] += score;
    }
#pragma unroll
    for (int j = 0; j < 2 * kDimTiles; ++j) sums[i][j / 2][2 * half + j % 2] *= scale;
  }

  // Values times weights, which lie as the left side of a product wants them.
  __device__ void AddValues(Keys& v) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t v_at = SharedAddress(v.At(lane % 16, lane / 16));
#pragma unroll
    for (int step = 0; step < Cut<kDim>::kTokenSteps; ++step) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const float(&low)[4] = scores[i][2 * step], (&high)[4] = scores[i][2 * step + 1];
        a[i][0] = PackBf16(low[0], low[1]);
        a[i][1] = PackBf16(low[2], low[3]);
        a[i][2] = PackBf16(high[0], high[1]);
        a[i][3] = PackBf16(high[2], high[3]);
      }
#pragma unroll
      for (int pair = 0; pair < kDimTiles / 2; ++pair) {
        uint32_t b[4];
        LoadTransposed(v.Further(v_at, pair, step), b);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          MultiplyAdd(sums[i][2 * pair], a[i], b[0], b[1]);
          MultiplyAdd(sums[i][2 * pair + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  template <typename Function>
  __device__ void ForEachScore(const Function& function) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) function(scores[i][j][k]);
      }
    }
  }
};

// A warp's rows, by shared memory so that whole units are stored. No other warp has read or will
// write these rows of q. `v_scale`: what values are multiplied by.
template <int kDim>
__device__ void Store(const AttentionPrefillArgs& op, const Item& item, float v_scale,
                      WarpPrefill<kDim>& warp, HeadRows<kDim, PrefillRows(kDim)>& rows) {
  constexpr uint32_t kUnits = kDim / 8, kWarpRows = Cut<kDim>::kWarpRows;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2 * Cut<kDim>::kRowTiles; ++i) {
    float all = warp.weights[i / 2][i % 2];
    all += __shfl_xor_sync(kAll, all, 1);
    all += __shfl_xor_sync(kAll, all, 2);
    // Of a row without tokens sums are 0 times values, which may be no numbers.
    const float scale = v_scale / all;
    const auto result = [all, scale](float sum) { return all == 0 ? 0 : sum * scale; };
    const uint32_t row = warp.RowOf(i / 2, i % 2);
#pragma unroll
    for (uint32_t unit = 0; unit < kUnits; ++unit) {
      const float(&sums)[4] = warp.sums[i / 2][unit];
      reinterpret_cast<uint32_t*>(rows.At(row, unit))[threadIdx.x % 4] =
          PackBf16(result(sums[2 * (i % 2)]), result(sums[2 * (i % 2) + 1]));
    }
  }
  __syncwarp();
  for (uint32_t i = threadIdx.x % 32; i < kWarpRows * kUnits; i += 32) {
    const uint32_t row = threadIdx.x / 32 * kWarpRows + i / kUnits, unit = i % kUnits;
    const uint32_t token = item.TokenOf(row);
    if (token >= item.tile.tokens) break;
    const uint64_t element = (uint64_t{item.tile.first} + token) * op.attention.out_stride +
                             item.HeadOf(row) * kDim + 8 * unit;
    *reinterpret_cast<uint4*>(op.attention.out + element * 2) = *rows.At(row, unit);
  }
}

template <int kDim, typename Cached>
__device__ void Prefill(const AttentionPrefillArgs& op) {
  constexpr uint32_t kTokens = PrefillTokens(kDim), kWarpRows = Cut<kDim>::kWarpRows;
  extern __shared__ __align__(512) uint4 shared_units[];
  using Memory = PrefillMemory<kDim, Cached>;
  Memory& memory = *reinterpret_cast<Memory*>(shared_units);
  const AttentionDecodeArgs& attention = op.attention;
  WaitForPreviousLaunch();
  const uint64_t items = PrefillTiles(op, PrefillRows(kDim)) * attention.kv_heads;
  for (uint64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const Item item = ItemOf(op, PrefillRows(kDim), number, memory.tile);
    if (item.tile.tokens == 0) continue;
    const auto note = [&](uint64_t at, int stage) {
      if (threadIdx.x < kTokens) memory.token_at[stage][threadIdx.x] = at;
    };
    WarpPrefill<kDim> warp;
    TokenLookup<kTokens> now(attention, item, item.begin);
    TokenLookup<kTokens> soon(attention, item, item.begin + kTokens);
    TokenLookup<kTokens> later(attention, item, item.begin + 2 * kTokens);
    if (item.begin < item.end) {
      note(now.Place(), 0);
      note(soon.Place(), 1);
      CopyQ<kDim>(op, item, memory.q);
      __syncthreads();
      CopyTokens<kDim>(attention, memory.token_at[0], 0, memory.tokens);
    }
    const uint32_t warp_end =
        static_cast<uint32_t>(max(item.VisibleTo(threadIdx.x / 32 * kWarpRows + kWarpRows - 1), 0));
    int stage = 0;
    for (uint32_t first = item.begin; first < item.end; first += kTokens, stage ^= 1) {
      WaitUnitsCopied();
      __syncthreads();  // these tokens are there; those before have been used by all
      const uint32_t next = first + kTokens;
      if (next < item.end) {
        CopyTokens<kDim>(attention, memory.token_at[stage ^ 1], stage ^ 1, memory.tokens);
      }
      // Of the step after the next; what was asked for a step ago.
      const uint64_t later_at = later.Place();
      later.Ask(next + 2 * kTokens);
      WidenTokens<kDim>(stage, memory.tokens);
      if (first < warp_end) {
        warp.Add(attention, item, first, memory.q, memory.tokens.KeysOf(stage),
                 memory.tokens.ValuesOf(stage));
      }
      note(later_at, stage);
    }
    Store<kDim>(op, item, sizeof(Cached) == 1 ? attention.cache.v_scale : 1, warp, memory.q);
  }
}

}  // namespace

#define CONCERT_PREFILL_OF(dim, suffix, cached)                                                    \
  extern "C" __global__ void __launch_bounds__(kPrefillThreads, kPrefillBlocksPerSm)               \
      concert_attention_prefill_##dim##suffix(const __grid_constant__ AttentionPrefillArgs args) { \
    Prefill<dim, cached>(args);                                                                    \
  }
#define CONCERT_PREFILL(dim)               \
  CONCERT_PREFILL_OF(dim, , __nv_bfloat16) \
  CONCERT_PREFILL_OF(dim, _e4m3, E4m3)

CONCERT_PREFILL(64)
CONCERT_PREFILL(128)
CONCERT_PREFILL(256)

}  // namespace concert::kernels::cuda
