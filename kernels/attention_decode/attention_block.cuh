// Attention of a decode step by one block, which is as fast as K and V can be read once. A block
// takes a chunk of a row's tokens for one head of the cache and all heads of q that share it; its
// warps take 16 or 32 tokens at a time, straight from memory to registers, in the order that the
// tensor cores want: which elements of K and q meet in a product, and which column of V's product
// is which element, is free as long as both sides agree. Nothing in shared memory but the warps'
// results.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_BLOCK_CUH_
#define CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_BLOCK_CUH_

#include <cuda_bf16.h>

#include <type_traits>

#include "kernels/attention/attention.cuh"
#include "kernels/attention_decode/attention_kernel_args.h"

namespace concert::kernels::cuda {

// d += a * b, of m16n8k16, for the upper 8 rows of a; the lower are zero and what comes of them is
// dropped.
__device__ __forceinline__ void MultiplyUpper(float (&d)[2], uint32_t a_low, uint32_t a_high,
                                              uint32_t b_low, uint32_t b_high) {
  [[maybe_unused]] float dropped[2];
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %5}, "
      "{%7, %8}, {%0, %1, %9, %9};"
      : "+f"(d[0]), "+f"(d[1]), "=f"(dropped[0]), "=f"(dropped[1])
      : "r"(a_low), "r"(0), "r"(a_high), "r"(b_low), "r"(b_high), "f"(0.0f));
}

// From an element of type T on.
template <typename T, typename Unit = uint4>
__device__ __forceinline__ Unit LoadUnit(Address base, uint64_t element) {
  return *reinterpret_cast<const Unit*>(base + element * sizeof(T));
}

__device__ __forceinline__ uint32_t Word(const uint4& unit, int i) {
  return i == 0 ? unit.x : i == 1 ? unit.y : i == 2 ? unit.z : unit.w;
}
__device__ __forceinline__ uint32_t Word(const uint2& unit, int i) {
  return i == 0 ? unit.x : unit.y;
}

// 0 for a state without tokens: it weighs nothing, whatever the others are.
__device__ __forceinline__ float WeightOf(const SoftmaxState& state, float largest) {
  return state.sum == 0 ? 0 : exp2f(state.largest - largest);
}

// What some warps of a block work on together: tokens [begin, end) of a row.
struct AttentionChunk {
  uint64_t row;
  uint32_t kv_head, index;  // index: among the row's chunks
  uint32_t begin, end;
};

// Warps of a block that work on chunks together, which are neighbours, and this one among them.
class AttentionTeam {
 public:
  __device__ explicit AttentionTeam(uint32_t warps) : warps_(warps) {}
  __device__ uint32_t warps() const { return warps_; }
  __device__ uint32_t threads() const { return 32 * warps_; }
  // Among the block's teams; how many those are.
  __device__ uint32_t index() const { return threadIdx.x / threads(); }
  __device__ uint32_t count() const { return blockDim.x / threads(); }
  // This warp and this thread, among the team's.
  __device__ uint32_t warp() const { return threadIdx.x / 32 % warps_; }
  __device__ uint32_t thread() const { return threadIdx.x % threads(); }
  // __syncthreads of the team. Barrier 0 is that of all threads.
  __device__ void Sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + index()), "r"(threads()) : "memory");
  }

 private:
  const uint32_t warps_;
};

// A warp's part of a chunk. Lanes are 8 quads: lane / 4 is the head of q among those that share the
// cache's, and in products of K the token's column; lane % 4 says which elements. `Cached`: an
// element of the cache, bf16 or e4m3. Units of e4m3 have twice as many elements; they stay as they
// are until they are multiplied.
template <int kDim, typename Cached>
struct WarpAttention {
  static constexpr bool kNarrow = sizeof(Cached) == 1;
  // Of 16 tokens that a warp takes at a time.
  static constexpr int kTiles = kDim == 64 || kNarrow ? 2 : 1;
  static constexpr int kTokens = 16 * kTiles;
  static constexpr int kUnits = kDim / 32;   // 16-byte units of a head that a lane has of q
  static constexpr int kHalves = kDim / 64;  // of a head
  static constexpr int kKeyWidth = 16 / sizeof(Cached);     // elements of a unit of k
  static constexpr int kKeyUnits = kDim / (4 * kKeyWidth);  // that a lane has of a head
  static constexpr int kValueWidth =
      kKeyWidth < kDim / 8 ? kKeyWidth : kDim / 8;  // of v: 8 lanes have a head's
  static constexpr int kValueUnits = kDim / (8 * kValueWidth);
  using ValueUnit = std::conditional_t<kValueWidth * sizeof(Cached) == 16, uint4, uint2>;

  uint4 q[kUnits];
  float sums[kHalves][8][2] = {};
  SoftmaxState state = {-INFINITY, 0};  // of the quad's head; sum: of the lane's own tokens

  __device__ void LoadQ(const AttentionDecodeArgs& op, const AttentionChunk& chunk) {
    const uint32_t group = op.q_heads / op.kv_heads;
    const uint32_t head = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;
    const uint64_t at = chunk.row * op.q_stride + (chunk.kv_head * group + head) * kDim;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      // As the elements of k lie.
      constexpr int kParts = kKeyWidth / 8;
      const uint64_t element =
          at + 32 * kParts * (i / kParts) + kKeyWidth * quarter + 8 * (i % kParts);
      q[i] = head < group ? LoadUnit<__nv_bfloat16>(op.q, element) : uint4{};
    }
  }

  // Tokens from `first` on, of which lane l knows where token l % kTokens begins (`at`); those from
  // `end` on weigh nothing, whatever they are.
  __device__ void Add(const AttentionDecodeArgs& op, uint32_t first, uint32_t end, uint64_t at) {
    float scores[kTiles][2][2] = {};
    uint4 k[2 * kTiles][kKeyUnits];
    ValueUnit v[kTiles][4][kValueUnits];
    LoadKeys(op, at, k);
    LoadValues(op, at, v);
    KeepOrder();  // else values are asked for when the keys are there, to save registers
    MultiplyKeys(k, scores);
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      const uint32_t token = first + 8 * (i / 2) + 2 * (threadIdx.x % 4) + i % 2;
      float& score = scores[i / 4][i / 2 % 2][i % 2];
      score = token < end ? Score(op, score) : -INFINITY;
    }
    Weigh(scores);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) AddValues(scores[tile], v[tile]);
  }

 private:
  static __device__ void KeepOrder() { asm volatile("" ::: "memory"); }

  static __device__ void LoadKeys(const AttentionDecodeArgs& op, uint64_t at,
                                  uint4 (&k)[2 * kTiles][kKeyUnits]) {
    const uint32_t eighth = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2 * kTiles; ++half) {
      const uint64_t token = __shfl_sync(kAll, at, 8 * half + eighth);
#pragma unroll
      for (int i = 0; i < kKeyUnits; ++i)
        k[half][i] = LoadUnit<Cached>(op.cache.k, token + 4 * kKeyWidth * i + kKeyWidth * quarter);
    }
  }

  // Those that lie as unit `i` of q does.
  static __device__ uint4 Keys(const uint4 (&k)[kKeyUnits], int i) {
    if constexpr (kNarrow) {
      const uint4& unit = k[i / 2];
      return i % 2 == 0 ? Widen(unit.x, unit.y) : Widen(unit.z, unit.w);
    } else {
      return k[i];
    }
  }

  // q times K^T: [tile][half] are 8 tokens, of which a lane has its quarter's two.
  __device__ void MultiplyKeys(const uint4 (&k)[2 * kTiles][kKeyUnits],
                               float (&products)[kTiles][2][2]) {
#pragma unroll
    for (int half = 0; half < 2 * kTiles; ++half) {
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        const uint4 unit = Keys(k[half], i);
        MultiplyUpper(products[half / 2][half % 2], q[i].x, q[i].y, unit.x, unit.y);
        MultiplyUpper(products[half / 2][half % 2], q[i].z, q[i].w, unit.z, unit.w);
      }
    }
  }

  // Of a tile's 16 tokens a lane takes its quarter's two of each half, and of their heads a unit of
  // each 8 lanes' units.
  static __device__ void LoadValues(const AttentionDecodeArgs& op, uint64_t at,
                                    ValueUnit (&v)[kTiles][4][kValueUnits]) {
    const uint32_t eighth = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      const uint64_t token = __shfl_sync(kAll, at, 8 * (i / 2) + 2 * quarter + i % 2);
#pragma unroll
      for (int unit = 0; unit < kValueUnits; ++unit) {
        v[i / 4][i % 4][unit] = LoadUnit<Cached, ValueUnit>(
            op.cache.v, token + 8 * kValueWidth * unit + kValueWidth * eighth);
      }
    }
  }

  // Times log2(e).
  static __device__ float Score(const AttentionDecodeArgs& op, float product) {
    product *= op.scale;
    if (op.soft_cap != 0) product = op.soft_cap * tanhf(product / op.soft_cap);
    return product * kLog2E;
  }

  // Makes weights of scores, and what was added before fit them.
  __device__ void Weigh(float (&scores)[kTiles][2][2]) {
    float largest = state.largest;
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      largest = fmaxf(largest, scores[i / 4][i / 2 % 2][i % 2]);
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
    // All scores may be -inf, which is no number to subtract.
    const float base = largest == -INFINITY ? 0 : largest;
    const float scale = exp2f(state.largest - base);
    state.largest = largest;
    state.sum *= scale;
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      float& score = scores[i / 4][i / 2 % 2][i % 2];
      score = exp2f(score - base);
      state.sum += score;
    }
#pragma unroll
    for (int i = 0; i < 16 * kHalves; ++i) sums[i / 16][i / 2 % 8][i % 2] *= scale;
  }

  // Element j of the units of two neighbouring tokens.
  static __device__ uint32_t Pair(const ValueUnit& first, const ValueUnit& second, int j) {
    if constexpr (kNarrow) {
      const bool upper = j % 4 >= 2;  // of a word, whose pairs come two at a time
      const uint32_t pairs =
          __byte_perm(Word(first, j / 4), Word(second, j / 4), upper ? 0x7362 : 0x5140);
      return WidenPair(j % 2 == 0 ? pairs : pairs >> 16);
    } else {
      return __byte_perm(Word(first, j / 2), Word(second, j / 2), j % 2 == 0 ? 0x5410 : 0x7632);
    }
  }

  // 16 tokens' values times their weights. Column c of product j of a unit is element
  // kValueWidth * c + j.
  __device__ void AddValues(const float (&weights)[2][2], const ValueUnit (&v)[4][kValueUnits]) {
    const uint32_t low = PackBf16(weights[0][0], weights[0][1]);
    const uint32_t high = PackBf16(weights[1][0], weights[1][1]);
#pragma unroll
    for (int unit = 0; unit < kValueUnits; ++unit) {
#pragma unroll
      for (int j = 0; j < kValueWidth; ++j) {
        const int product = kValueWidth * unit + j;
        MultiplyUpper(sums[product / 8][product % 8], low, high, Pair(v[0][unit], v[1][unit], j),
                      Pair(v[2][unit], v[3][unit], j));
      }
    }
  }
};

// Results of a block's warps, kWarps at most, for the heads that share the cache's, on their way to
// out.
template <int kDim, int kWarps>
struct WarpResults {
  static constexpr int kMostWarps = kWarps;

  __device__ float& Sum(uint32_t warp, uint32_t head, uint32_t element) {
    return sums[warp][head][element];
  }
  __device__ float Sum(uint32_t warp, uint32_t head, uint32_t element) const {
    return sums[warp][head][element];
  }
  __device__ SoftmaxState& State(uint32_t warp, uint32_t head) { return states[warp][head]; }
  __device__ const SoftmaxState& State(uint32_t warp, uint32_t head) const {
    return states[warp][head];
  }

  float sums[kWarps][kMaxHeadGroup][kDim];
  SoftmaxState states[kWarps][kMaxHeadGroup];
};

template <int kDim, typename Cached, typename Results>
__device__ void Keep(WarpAttention<kDim, Cached>& attention, Results& results) {
  constexpr int kWidth = WarpAttention<kDim, Cached>::kValueWidth;
  const int warp = threadIdx.x / 32, head = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;
  SoftmaxState& state = attention.state;
  state.sum += __shfl_xor_sync(kAll, state.sum, 1);
  state.sum += __shfl_xor_sync(kAll, state.sum, 2);
  if (quarter == 0) results.State(warp, head) = state;
    // Columns 2 * quarter and the next: 2 * kWidth neighbouring elements in a unit.
#pragma unroll
  for (int i = 0; i < kDim / 4; ++i) {
    const int unit = i / (2 * kWidth), product = kWidth * unit + i % kWidth;
    results.Sum(warp, head, 8 * kWidth * unit + 2 * kWidth * quarter + i % (2 * kWidth)) =
        attention.sums[product / 8][product % 8][i / kWidth % 2];
  }
}

// This warp's part of a chunk, into `results`.
template <int kDim, typename Cached, typename Results>
__device__ void AttendChunk(const AttentionDecodeArgs& op, const AttentionChunk& chunk,
                            const AttentionTeam& team, Results& results) {
  using Warp = WarpAttention<kDim, Cached>;
  // Where this lane's token of the step from `first` on begins; the last, if there are fewer.
  const auto token_at = [&](uint32_t first) {
    const uint32_t token = min(first + threadIdx.x % 32 % Warp::kTokens, chunk.end - 1);
    return op.TokenAt(chunk.row, token) + uint64_t{chunk.kv_head} * op.cache.head_stride;
  };
  Warp attention;
  attention.LoadQ(op, chunk);
  uint32_t first = chunk.begin + team.warp() * Warp::kTokens;
  uint64_t at = first < chunk.end ? token_at(first) : 0;
  while (first < chunk.end) {
    const uint32_t next = first + team.warps() * Warp::kTokens;
    // Looked up ahead, so that no load of K waits for one of the page table.
    const uint64_t next_at = next < chunk.end ? token_at(next) : 0;
    attention.Add(op, first, chunk.end, at);
    first = next, at = next_at;
  }
  Keep(attention, results);
}

// Adds up the sums of an element of a head that `warps` warps have, from `first` on, and says in
// `all` of what: the element is their quotient. REQUIRES: all of them have attended.
template <typename Results>
__device__ float AddUpWarps(const Results& results, int warps, uint32_t head, uint32_t element,
                            SoftmaxState& all, int first = 0) {
  // All of them at once, so that no load waits for another.
  SoftmaxState states[Results::kMostWarps];
  float sums[Results::kMostWarps];
#pragma unroll
  for (int warp = 0; warp < Results::kMostWarps; ++warp) {
    const bool is_there = warp < warps;
    states[warp] = is_there ? results.State(first + warp, head) : SoftmaxState{-INFINITY, 0};
    sums[warp] = is_there ? results.Sum(first + warp, head, element) : 0;
  }
  all = {-INFINITY, 0};
#pragma unroll
  for (const SoftmaxState& state : states) all.largest = fmaxf(all.largest, state.largest);
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < Results::kMostWarps; ++warp) {
    const float weight = WeightOf(states[warp], all.largest);
    all.sum += weight * states[warp].sum;
    sum += weight * sums[warp];
  }
  return sum;
}

__device__ __forceinline__ float Quotient(float sum, const SoftmaxState& all) {
  return all.sum == 0 ? 0 : sum / all.sum;
}

// Adds up the warps' results: to out where a row has one chunk, else to the chunk's partial sums.
// REQUIRES: all threads of the team call it, and all its warps have attended.
template <int kDim, typename Cached, typename Results>
__device__ void FinishChunk(const AttentionDecodeArgs& op, const AttentionChunk& chunk,
                            const AttentionTeam& team, const AttentionPartials& partials,
                            const Results& results) {
  const uint32_t group = op.q_heads / op.kv_heads;
  const int warps = static_cast<int>(team.warps());
  const int first = static_cast<int>(team.index() * team.warps());
  for (uint32_t i = team.thread(); i < group * kDim; i += team.threads()) {
    const uint32_t head = i / kDim, element = i % kDim;
    SoftmaxState all;
    float sum = AddUpWarps(results, warps, head, element, all, first);
    if constexpr (sizeof(Cached) == 1) sum *= op.cache.v_scale;
    const uint64_t q_head = uint64_t{chunk.kv_head} * group + head;
    if (partials.chunks == 1) {
      reinterpret_cast<__nv_bfloat16*>(
          op.out)[chunk.row * op.out_stride + q_head * kDim + element] =
          __float2bfloat16_rn(Quotient(sum, all));
      continue;
    }
    const uint64_t partial = (chunk.row * op.q_heads + q_head) * partials.chunks + chunk.index;
    partials.sums[partial * kDim + element] = sum;
    // Also of a chunk without tokens: what lay here before is somebody else's.
    if (element == 0) partials.states[partial] = all;
  }
}

// A warp adds up the chunks of head `head` of all rows' heads.
template <int kDim>
__device__ void CombineChunks(const AttentionDecodeArgs& op, const AttentionPartials& partials,
                              uint64_t head) {
  constexpr int kElements = kDim / 32;  // of a lane, neighbours
  const uint32_t lane = threadIdx.x % 32;
  const SoftmaxState* states = partials.states + head * partials.chunks;
  const float* partial = partials.sums + head * partials.chunks * kDim + lane * kElements;
  float largest = -INFINITY;
  for (uint32_t i = lane; i < partials.chunks; i += 32) largest = fmaxf(largest, states[i].largest);
  for (int i = 16; i > 0; i /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, i));
  float all = 0, sums[kElements] = {};
#pragma unroll 4
  for (uint32_t i = 0; i < partials.chunks; ++i) {
    const float weight = WeightOf(states[i], largest);
    all += weight * states[i].sum;
#pragma unroll
    for (int j = 0; j < kElements; ++j) sums[j] += weight * partial[i * kDim + j];
  }
  const uint64_t row = head / op.q_heads;
  __nv_bfloat16* out = reinterpret_cast<__nv_bfloat16*>(op.out) + row * op.out_stride +
                       (head - row * op.q_heads) * kDim + lane * kElements;
#pragma unroll
  for (int j = 0; j < kElements; ++j) out[j] = __float2bfloat16_rn(all == 0 ? 0 : sums[j] / all);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_BLOCK_CUH_
