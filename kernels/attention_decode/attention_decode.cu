// The launches of attention_decode: chunks of rows, and where rows have several of them, their sum.
#include "kernels/attention_decode/attention_block.cuh"
#include "kernels/attention_decode/ring_attention.cuh"

namespace concert::kernels::cuda {
namespace {

// Which item of an op it is; its tokens are not known yet.
__device__ AttentionChunk ChunkOf(const AttentionKernelArgs& args, const AttentionDecodeArgs& op,
                                  uint32_t item) {
  AttentionChunk chunk = {};
  const uint32_t of_row = item / op.kv_heads, row = of_row / args.partials.chunks;
  chunk.kv_head = item - of_row * op.kv_heads;
  chunk.row = row;
  chunk.index = of_row - row * args.partials.chunks;
  return chunk;
}

// A warp's lanes see one length, which the client may change meanwhile; what another warp sees is
// no matter to it.
__device__ void FindTokens(const AttentionKernelArgs& args, const AttentionDecodeArgs& op,
                           AttentionChunk& chunk) {
  const uint32_t length = __shfl_sync(kAll, op.LengthOf(chunk.row), 0);
  const uint32_t first = length - min(length, op.span_max());
  chunk.begin = min(length, first + chunk.index * args.chunk_tokens);
  chunk.end = min(length, chunk.begin + args.chunk_tokens);
}

// The next launch may take the SMs that this one's last blocks leave.
__device__ void LineUp(const AttentionKernelArgs& args) {
  if (args.releases_next) ReleaseNextLaunch();
  WaitForPreviousLaunch();
}

__device__ bool IsThere(const AttentionKernelArgs& args, uint64_t op) {
  return args.there == nullptr || (*args.there >> op & 1) != 0;
}

__device__ AttentionDecodeArgs OpAt(const AttentionKernelArgs& args, uint64_t index) {
  const AttentionPlaces& places = args.places[index];
  AttentionDecodeArgs op = args.op;
  op.q = places.q, op.page_table = places.page_table, op.lengths = places.lengths;
  op.out = places.out, op.cache.k = places.k, op.cache.v = places.v;
  return op;
}

// Of an op's rows.
template <int kDim>
__device__ AttentionPartials PartialsOf(const AttentionKernelArgs& args, uint64_t index) {
  const uint64_t states = index * args.op.rows * args.op.q_heads * args.partials.chunks;
  AttentionPartials partials = args.partials;
  partials.sums += states * kDim, partials.states += states;
  return partials;
}

// Memory of a block's warps, each of which has its ring, and in the place of that its result.
template <int kDim, typename Cached>
class WarpMemory {
 public:
  static constexpr int kMostWarps = MostAttentionWarps(kDim);

  __device__ explicit WarpMemory(char* begin) : begin_(begin) {}
  __device__ char* ring(uint32_t warp) const {
    return begin_ + warp * AttentionWarpBytes(kDim, sizeof(Cached));
  }
  __device__ float& Sum(uint32_t warp, uint32_t head, uint32_t element) const {
    return Of(warp).sums[0][head][element];
  }
  __device__ SoftmaxState& State(uint32_t warp, uint32_t head) const {
    return Of(warp).states[0][head];
  }

 private:
  using Result = WarpResults<kDim, 1>;
  static_assert(sizeof(Result) <= AttentionWarpBytes(kDim, sizeof(Cached)));
  __device__ Result& Of(uint32_t warp) const { return *reinterpret_cast<Result*>(ring(warp)); }

  char* const begin_;
};

template <int kDim, typename Cached>
__device__ void Attend(const AttentionKernelArgs& args) {
  extern __shared__ __align__(128) char shared[];
  WarpMemory<kDim, Cached> memory(shared);
  const AttentionTeam team(args.warps_each);
  LineUp(args);
  const uint32_t items = args.op_count * args.op_items;
  for (uint32_t item = blockIdx.x * team.count() + team.index(); item < items;
       item += gridDim.x * team.count()) {
    const uint32_t index = item / args.op_items;
    if (!IsThere(args, index)) continue;
    const AttentionDecodeArgs op = OpAt(args, index);
    AttentionChunk chunk = ChunkOf(args, op, item - index * args.op_items);
    if constexpr (AttendsByRing(kDim, sizeof(Cached))) {
      PageWindow pages(op, chunk.row);
      // Its tokens as a rule: their pages are on their way while the length is.
      pages.MoveTo(chunk.index * args.chunk_tokens);
      FindTokens(args, op, chunk);
      RingAttention<kDim> attention(op, chunk, team, memory.ring(threadIdx.x / 32));
      attention.Attend(pages);
      attention.Keep(memory);
    } else {
      FindTokens(args, op, chunk);
      AttendChunk<kDim, Cached>(op, chunk, team, memory);
    }
    team.Sync();
    FinishChunk<kDim, Cached>(op, chunk, team, PartialsOf<kDim>(args, index), memory);
    team.Sync();  // results have been read before the next item's tokens come
  }
}

template <int kDim>
__device__ void Combine(const AttentionKernelArgs& args) {
  LineUp(args);
  const uint64_t heads_each = uint64_t{args.op.rows} * args.op.q_heads;
  const uint64_t head = uint64_t{blockIdx.x} * (kCombineThreads / 32) + threadIdx.x / 32;
  const uint64_t index = head / heads_each;
  if (index >= args.op_count || !IsThere(args, index)) return;
  CombineChunks<kDim>(OpAt(args, index), PartialsOf<kDim>(args, index), head - index * heads_each);
}

}  // namespace

#define CONCERT_ATTENTION_OF(dim, suffix, cached)                                                \
  extern "C" __global__ void __launch_bounds__(32 * MostAttentionWarps(dim))                     \
      concert_attention_decode_##dim##suffix(const __grid_constant__ AttentionKernelArgs args) { \
    Attend<dim, cached>(args);                                                                   \
  }
#define CONCERT_ATTENTION(dim)                                                            \
  CONCERT_ATTENTION_OF(dim, , __nv_bfloat16)                                              \
  CONCERT_ATTENTION_OF(dim, _e4m3, E4m3)                                                  \
  extern "C" __global__ void __launch_bounds__(kCombineThreads)                           \
      concert_attention_combine_##dim(const __grid_constant__ AttentionKernelArgs args) { \
    Combine<dim>(args);                                                                   \
  }

CONCERT_ATTENTION(64)
CONCERT_ATTENTION(128)
CONCERT_ATTENTION(256)

}  // namespace concert::kernels::cuda
